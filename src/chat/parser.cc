#include "chat/parser.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::chat {

Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > 150) {
    --parser_.nesting_;
    parser_.fail("nested more than 150 levels deep");
  }
}

const Token& Parser::token(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}
bool Parser::is_symbol(std::string_view symbol) const {
  return token().kind == Token::Kind::symbol && token().text == symbol;
}
bool Parser::is_name(std::string_view name, std::size_t ahead) const {
  return token(ahead).kind == Token::Kind::name && token(ahead).text == name;
}
bool Parser::skip_symbol(std::string_view symbol) {
  if (!is_symbol(symbol)) return false;
  ++at_;
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  ++at_;
  return true;
}
void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) {
    fail(cat("expected '", symbol, "', found ",
             token().text.empty() ? "the end of the tag" : quote(token().text)));
  }
}
void Parser::expect(Token::Kind kind, const char* what) {
  if (!is(kind)) {
    fail(cat("expected ", what, ", found ",
             token().text.empty() ? "the end of the tag" : quote(token().text)));
  }
  ++at_;
}
std::string Parser::expect_name(const char* what) {
  expect(Token::Kind::name, cat("the name of ", what).c_str());
  return tokens_[at_ - 1].text;
}
void Parser::fail(const std::string& what) const {
  throw TemplateError(cat("line ", token().line, ": ", what));
}

Block Parser::parse() {
  Block all = block({});
  return all;
}

std::unique_ptr<Statement> Parser::make(Statement::Kind kind) const {
  auto node = std::make_unique<Statement>();
  node->kind = kind;
  node->line = token().line;
  return node;
}

// Ends before the name of the tag that closes it, behind its begin.
Block Parser::block(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Block body;
  while (true) {
    if (is(Token::Kind::end)) {
      if (ends.size() == 0) return body;
      fail(cat("the template ends before ", quote(*(ends.end() - 1))));
    }
    if (is(Token::Kind::text)) {
      auto node = make(Statement::Kind::text);
      node->text = Text(token().text);
      ++at_;
      body.push_back(std::move(node));
    } else if (is(Token::Kind::variable_begin)) {
      auto node = make(Statement::Kind::output);
      ++at_;
      node->value = tuple(true);
      expect(Token::Kind::variable_end, "the end of the tag");
      body.push_back(std::move(node));
    } else {
      expect(Token::Kind::block_begin, "a tag");
      for (const std::string_view end : ends) {
        if (is_name(end)) return body;
      }
      body.push_back(statement());
    }
  }
}

Block Parser::body_until(std::string_view end) {
  end_block();
  Block body = block({end});
  ++at_;
  end_block();
  return body;
}

std::unique_ptr<Statement> Parser::statement() {
  if (!is(Token::Kind::name)) fail("a tag needs a name");
  const std::string name = token().text;
  if (name == "if") return conditional();
  if (name == "for") return loop();
  if (name == "set") return assignment();
  if (name == "macro") return macro();
  if (name == "call") return call();
  if (name == "filter") return filter();
  if (name == "with") return with();
  if (name == "generation") {
    auto node = make(Statement::Kind::scope);
    ++at_;
    node->body = body_until("endgeneration");
    return node;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) fail(cat(quote(name), " stands outside of a loop"));
    auto node =
        make(name == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop);
    ++at_;
    end_block();
    return node;
  }
  fail(cat("unknown tag ", quote(name)));
}

std::unique_ptr<Statement> Parser::conditional() {
  const Nesting nesting(*this);
  auto node = make(Statement::Kind::conditional);
  ++at_;
  node->value = tuple(false);
  end_block();
  node->body = block({"elif", "else", "endif"});
  if (is_name("elif")) {
    node->other.push_back(conditional());
    return node;
  }
  if (skip_name("else")) {
    end_block();
    node->other = block({"endif"});
  }
  ++at_;
  end_block();
  return node;
}

std::unique_ptr<Statement> Parser::loop() {
  auto node = make(Statement::Kind::loop);
  ++at_;
  node->target = target();
  if (!skip_name("in")) fail("expected \"in\"");
  node->value = tuple(false);
  if (skip_name("if")) node->condition = expression();
  node->recursive = skip_name("recursive");
  end_block();
  ++loops_;
  node->body = block({"else", "endfor"});
  --loops_;
  if (skip_name("else")) {
    end_block();
    node->other = block({"endfor"});
  }
  ++at_;
  end_block();
  return node;
}

std::unique_ptr<Statement> Parser::assignment() {
  auto node = make(Statement::Kind::assign);
  ++at_;
  if (is(Token::Kind::name) && token(1).kind == Token::Kind::symbol && token(1).text == ".") {
    auto attribute = make(Expression::Kind::attribute);
    auto owner = make(Expression::Kind::name);
    owner->text = expect_name("a variable");
    skip_symbol(".");
    attribute->text = expect_name("an attribute");
    adopt(*attribute, std::move(owner));
    node->target = std::move(attribute);
  } else {
    node->target = target();
  }
  if (skip_symbol("=")) {
    node->value = tuple(true);
    end_block();
    return node;
  }
  node->kind = Statement::Kind::assign_block;
  while (is_symbol("|")) node->value = one_filter(std::move(node->value));
  node->body = body_until("endset");
  return node;
}

void Parser::signature(Macro& macro) {
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    if (is_symbol(")")) break;
    Parameter parameter;
    parameter.name = expect_name("a parameter");
    if (skip_symbol("=")) {
      parameter.fallback = expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      fail("a parameter without a default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_symbol(")");
}

std::unique_ptr<Statement> Parser::macro() {
  auto node = make(Statement::Kind::macro);
  ++at_;
  node->macro.name = expect_name("a macro");
  signature(node->macro);
  macro_body(node->macro, "endmacro");
  return node;
}

void Parser::macro_body(Macro& macro, std::string_view end) {
  const std::size_t from = at_;
  const int loops = std::exchange(loops_, 0);
  macro.body = body_until(end);
  loops_ = loops;
  // Jinja gives these to macros that mention them.
  for (std::size_t i = from; i < at_; ++i) {
    if (tokens_[i].kind != Token::Kind::name) continue;
    macro.uses_caller |= tokens_[i].text == "caller";
    macro.uses_varargs |= tokens_[i].text == "varargs";
    macro.uses_kwargs |= tokens_[i].text == "kwargs";
  }
}

std::unique_ptr<Statement> Parser::call() {
  auto node = make(Statement::Kind::call);
  ++at_;
  node->macro.name = "caller";
  if (is_symbol("(")) signature(node->macro);
  node->value = unary(true);
  if (node->value->kind != Expression::Kind::call) fail("call needs a call");
  macro_body(node->macro, "endcall");
  return node;
}

std::unique_ptr<Statement> Parser::filter() {
  auto node = make(Statement::Kind::filter);
  ++at_;
  auto first = make(Expression::Kind::filter);
  first->text = expect_name("a filter");
  if (is_symbol("(")) adopt(*first, arguments());
  adopt(*first, ExpressionPtr());
  node->value = std::move(first);
  while (is_symbol("|")) node->value = one_filter(std::move(node->value));
  node->body = body_until("endfilter");
  return node;
}

std::unique_ptr<Statement> Parser::with() {
  auto node = make(Statement::Kind::with);
  ++at_;
  while (!is(Token::Kind::block_end)) {
    if (!node->assignments.empty()) expect_symbol(",");
    ExpressionPtr name = [&] {
      auto one = make(Expression::Kind::name);
      one->text = expect_name("a variable");
      return one;
    }();
    expect_symbol("=");
    ExpressionPtr value = expression();
    node->assignments.emplace_back(std::move(name), std::move(value));
  }
  node->body = body_until("endwith");
  return node;
}

}  // namespace coppice::chat
