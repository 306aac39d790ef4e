#include <algorithm>
#include <array>

#include "base/error.h"
#include "chat/parser.h"

namespace coppice::chat {

using Kind = Expression::Kind;

std::unique_ptr<Expression> Parser::make(Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = token().line;
  return node;
}

// Chains like 1 + 1 + 1 grow deep without recursion here, but whoever walks the tree recurses.
void Parser::adopt(Expression& node, ExpressionPtr part) const {
  if (part != nullptr) node.depth = std::max(node.depth, part->depth + 1);
  node.parts.push_back(std::move(part));
  if (node.depth > 400) fail("an expression is too long");
}

void Parser::adopt(Expression& node, std::vector<Argument> list) const {
  for (const Argument& argument : list) {
    node.depth = std::max(node.depth, argument.value->depth + 1);
  }
  node.arguments = std::move(list);
  if (node.depth > 400) fail("an expression is too long");
}

ExpressionPtr Parser::expression(bool conditionals) {
  const Nesting nesting(*this);
  if (!conditionals) return either();
  ExpressionPtr value = either();
  while (is_name("if")) {
    auto node = make(Kind::conditional);
    skip_name("if");
    ExpressionPtr condition = either();
    ExpressionPtr other;
    if (skip_name("else")) other = expression();
    adopt(*node, std::move(condition));
    adopt(*node, std::move(value));
    adopt(*node, std::move(other));
    value = std::move(node);
  }
  return value;
}

// Operands that one of the words or signs joins, the left ones first.
ExpressionPtr Parser::joined(std::initializer_list<std::string_view> joints, Kind kind,
                             ExpressionPtr (Parser::*operand)()) {
  const auto joins = [&](std::string_view joint) {
    return kind == Kind::binary ? is_symbol(joint) : is_name(joint);
  };
  ExpressionPtr left = (this->*operand)();
  while (std::any_of(joints.begin(), joints.end(), joins)) {
    auto node = make(kind);
    if (kind == Kind::binary) node->text = token().text;
    ++at_;
    adopt(*node, std::move(left));
    adopt(*node, (this->*operand)());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr Parser::either() { return joined({"or"}, Kind::either, &Parser::both); }
ExpressionPtr Parser::both() { return joined({"and"}, Kind::both, &Parser::inverted); }

ExpressionPtr Parser::inverted() {
  const Nesting nesting(*this);
  if (!is_name("not")) return comparison();
  auto node = make(Kind::invert);
  skip_name("not");
  adopt(*node, inverted());
  return node;
}

ExpressionPtr Parser::comparison() {
  auto node = make(Kind::comparison);
  ExpressionPtr first = sum();
  constexpr std::array<std::string_view, 6> signs = {"==", "!=", "<=", ">=", "<", ">"};
  while (true) {
    std::string word;
    for (const std::string_view sign : signs) {
      if (is_symbol(sign)) word = sign;
    }
    if (is_name("in")) word = "in";
    if (is_name("not") && is_name("in", 1)) {
      word = "not in";
      ++at_;
    }
    if (word.empty()) break;
    ++at_;
    if (node->parts.empty()) adopt(*node, std::move(first));
    node->words.push_back(word);
    adopt(*node, sum());
  }
  if (node->parts.empty()) return first;
  return node;
}

ExpressionPtr Parser::sum() { return joined({"+", "-"}, Kind::binary, &Parser::concatenation); }

ExpressionPtr Parser::concatenation() {
  auto node = make(Kind::concat);
  ExpressionPtr first = product();
  if (!is_symbol("~")) return first;
  adopt(*node, std::move(first));
  while (skip_symbol("~")) adopt(*node, product());
  return node;
}

ExpressionPtr Parser::product() {
  return joined({"*", "/", "//", "%"}, Kind::binary, &Parser::power);
}
ExpressionPtr Parser::power() { return joined({"**"}, Kind::binary, &Parser::filtered); }

ExpressionPtr Parser::unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr value;
  if (is_symbol("-") || is_symbol("+")) {
    auto node = make(is_symbol("-") ? Kind::negate : Kind::plus);
    ++at_;
    adopt(*node, unary(false));
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::primary() {
  const Token& first = token();
  auto node = make(Kind::constant);
  switch (first.kind) {
    case Token::Kind::name:
      if (first.text == "true" || first.text == "True") {
        node->value = Value(true);
      } else if (first.text == "false" || first.text == "False") {
        node->value = Value(false);
      } else if (first.text != "none" && first.text != "None") {
        node->kind = Kind::name;
        node->text = first.text;
      }
      ++at_;
      return node;
    case Token::Kind::integer:
      node->value = Value(first.integer);
      ++at_;
      return node;
    case Token::Kind::real:
      node->value = Value(first.real);
      ++at_;
      return node;
    case Token::Kind::string: {
      std::string text;
      for (; is(Token::Kind::string); ++at_) text += token().text;
      node->value = Value(std::move(text));
      return node;
    }
    default:
      break;
  }
  if (skip_symbol("(")) {
    ExpressionPtr inner = tuple(true, true);
    expect_symbol(")");
    return inner;
  }
  if (skip_symbol("[")) {
    node->kind = Kind::list;
    while (!is_symbol("]")) {
      if (!node->parts.empty()) expect_symbol(",");
      if (is_symbol("]")) break;
      adopt(*node, expression());
    }
    expect_symbol("]");
    return node;
  }
  if (is_symbol("{")) return dict();
  fail(cat("unexpected ", first.text.empty() ? "end of the tag" : quote(first.text)));
}

ExpressionPtr Parser::dict() {
  auto node = make(Kind::dict);
  expect_symbol("{");
  while (!is_symbol("}")) {
    if (!node->parts.empty()) expect_symbol(",");
    if (is_symbol("}")) break;
    adopt(*node, expression());
    expect_symbol(":");
    adopt(*node, expression());
  }
  expect_symbol("}");
  return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      node = subscript(std::move(node));
    } else if (is_symbol("(")) {
      auto call = make(Kind::call);
      adopt(*call, arguments());
      adopt(*call, std::move(node));
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::filters(ExpressionPtr node) {
  while (true) {
    if (is_symbol("|")) {
      node = one_filter(std::move(node));
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_symbol("(")) {
      auto call = make(Kind::call);
      adopt(*call, arguments());
      adopt(*call, std::move(node));
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr node) {
  auto out = make(Kind::item);
  if (skip_symbol(".")) {
    adopt(*out, std::move(node));
    if (is(Token::Kind::integer)) {
      auto index = make(Kind::constant);
      index->value = Value(token().integer);
      ++at_;
      adopt(*out, std::move(index));
    } else {
      out->kind = Kind::attribute;
      out->text = expect_name("an attribute");
    }
    return out;
  }
  expect_symbol("[");
  adopt(*out, std::move(node));
  if (!is_symbol(":")) {
    ExpressionPtr index = tuple(true);
    if (!is_symbol(":")) {
      adopt(*out, std::move(index));
      expect_symbol("]");
      return out;
    }
    adopt(*out, std::move(index));
  } else {
    adopt(*out, nullptr);
  }
  out->kind = Kind::slice;
  for (int part = 0; part < 2; ++part) {
    const bool given = skip_symbol(":") && !is_symbol(":") && !is_symbol("]");
    adopt(*out, given ? expression() : nullptr);
  }
  expect_symbol("]");
  return out;
}

ExpressionPtr Parser::one_filter(ExpressionPtr node) {
  auto out = make(Kind::filter);
  expect_symbol("|");
  out->text = expect_name("a filter");
  while (skip_symbol(".")) out->text += "." + expect_name("a filter");
  if (is_symbol("(")) adopt(*out, arguments());
  adopt(*out, std::move(node));
  return out;
}

ExpressionPtr Parser::test(ExpressionPtr node) {
  auto out = make(Kind::test);
  skip_name("is");
  const bool negated = skip_name("not");
  out->text = expect_name("a test");
  while (skip_symbol(".")) out->text += "." + expect_name("a test");
  const bool value_follows =
      is(Token::Kind::string) || is(Token::Kind::integer) || is(Token::Kind::real) ||
      is_symbol("[") || is_symbol("{") ||
      (is(Token::Kind::name) && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_symbol("(")) {
    adopt(*out, arguments());
  } else if (value_follows) {
    if (is_name("is")) fail("tests with \"is\" cannot be chained");
    Argument argument;
    argument.value = postfix(primary());
    std::vector<Argument> one;
    one.push_back(std::move(argument));
    adopt(*out, std::move(one));
  }
  adopt(*out, std::move(node));
  if (!negated) return out;
  auto inverse = make(Kind::invert);
  adopt(*inverse, std::move(out));
  return inverse;
}

std::vector<Argument> Parser::arguments() {
  const Nesting nesting(*this);
  std::vector<Argument> list;
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (!list.empty()) expect_symbol(",");
    if (is_symbol(")")) break;
    Argument argument;
    if (skip_symbol("**")) {
      argument.stars = 2;
    } else if (skip_symbol("*")) {
      argument.stars = 1;
    } else if (is(Token::Kind::name) && token(1).kind == Token::Kind::symbol &&
               token(1).text == "=") {
      argument.name = token().text;
      at_ += 2;
    }
    const bool positional = argument.name.empty() && argument.stars == 0;
    if (positional && !list.empty() && (!list.back().name.empty() || list.back().stars == 2)) {
      fail("an argument without a name follows one with a name");
    }
    argument.value = expression();
    list.push_back(std::move(argument));
  }
  expect_symbol(")");
  return list;
}

bool Parser::tuple_ends() const {
  return is(Token::Kind::variable_end) || is(Token::Kind::block_end) || is_symbol(")") ||
         is_symbol("]") || is_symbol("=") || is_name("in") || is_name("recursive") ||
         is(Token::Kind::end);
}

ExpressionPtr Parser::tuple(bool conditionals, bool bracketed) {
  auto node = make(Kind::tuple);
  if (bracketed && is_symbol(")")) return node;
  bool several = false;
  while (true) {
    if (!node->parts.empty()) {
      if (!skip_symbol(",")) break;
      several = true;
      if (tuple_ends()) break;
    }
    adopt(*node, expression(conditionals));
  }
  if (several) return node;
  return std::move(node->parts[0]);
}

ExpressionPtr Parser::target() {
  const auto one = [&]() -> ExpressionPtr {
    if (skip_symbol("(")) {
      const Nesting nesting(*this);
      ExpressionPtr inner = target();
      expect_symbol(")");
      return inner;
    }
    auto name = make(Kind::name);
    name->text = expect_name("a variable");
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name->text == reserved) fail(cat("cannot assign to ", quote(reserved)));
    }
    return name;
  };
  auto node = make(Kind::tuple);
  bool several = false;
  adopt(*node, one());
  while (skip_symbol(",")) {
    several = true;
    if (tuple_ends()) break;
    adopt(*node, one());
  }
  if (several) return node;
  return std::move(node->parts[0]);
}

}  // namespace coppice::chat
