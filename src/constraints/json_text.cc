#include "constraints/json_text.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "constraints/code_points.h"

namespace coppice::constraints {
namespace {

// Members of one object times members that are counted: a state each.
constexpr std::size_t most_counted = 100'000;

}  // namespace

JsonText::JsonText(Expressions& expressions, JsonSpace space) : x_(expressions) {
  ByteSet white;
  for (const char c : {' ', '\t', '\n', '\r'}) white.add(c);
  if (space == JsonSpace::any) {
    space_ = x_.repeat(x_.bytes(white), 0, no_limit);
  } else if (space == JsonSpace::some) {
    const Expr line_end = x_.sequence({x_.repeat(x_.text("\r"), 0, 1), x_.text("\n")});
    ByteSet blanks;
    blanks.add(' ');
    blanks.add('\t');
    space_ = x_.concat(x_.repeat(line_end, 0, 2), x_.repeat(x_.bytes(blanks), 0, 32));
  } else {
    space_ = empty;
  }
  const char* tail = space == JsonSpace::python ? " " : "";
  comma_ = x_.sequence({space_, x_.text(cat(",", tail)), space_});
  colon_ = x_.sequence({space_, x_.text(cat(":", tail)), space_});
}

Expr JsonText::digits(std::int32_t least, std::int32_t most) {
  return x_.repeat(x_.bytes(ByteSet::range('0', '9')), least, most);
}

Expr JsonText::integer() {
  const Expr above_zero = x_.concat(x_.bytes(ByteSet::range('1', '9')), digits(0, no_limit));
  return x_.either({x_.text("0"), x_.concat(x_.optional(x_.text("-")), above_zero)});
}

Expr JsonText::number() {
  ByteSet e, sign;
  for (const char c : {'e', 'E'}) e.add(c);
  for (const char c : {'+', '-'}) sign.add(c);
  return x_.sequence(
      {x_.optional(x_.text("-")),
       x_.either(
           {x_.text("0"), x_.concat(x_.bytes(ByteSet::range('1', '9')), digits(0, no_limit))}),
       x_.optional(x_.concat(x_.text("."), digits())),
       x_.optional(x_.sequence({x_.bytes(e), x_.optional(x_.bytes(sign)), digits()}))});
}

Expr JsonText::string(std::int32_t least, std::int32_t most) {
  CodePoints plain(0x20, CodePoints::last);
  plain = plain.without(CodePoints('"', '"')).without(CodePoints('\\', '\\'));
  const auto set = [&](std::string_view characters_of_set) {
    ByteSet bytes;
    for (const char c : characters_of_set) bytes.add(c);
    return x_.bytes(bytes);
  };
  const Expr hex = set("0123456789abcdefABCDEF");
  const Expr hex2 = x_.concat(hex, hex), hex3 = x_.concat(hex, hex2);
  // Two halves of a pair are one character; a half alone is none.
  const Expr unpaired = x_.either({x_.concat(set("0123456789abcefABCEF"), hex3),
                                   x_.sequence({set("dD"), set("01234567"), hex2})});
  const Expr paired = x_.sequence(
      {set("dD"), set("89abAB"), hex2, x_.text("\\u"), set("dD"), set("cdefCDEF"), hex2});
  const Expr escape = x_.concat(
      x_.text("\\"),
      x_.either({set("\"\\/bfnrt"), x_.concat(x_.text("u"), x_.either({unpaired, paired}))}));
  return quoted(x_.repeat(x_.either({utf8(x_, plain), escape}), least, most));
}

Expr JsonText::characters(std::int32_t least, std::int32_t most) {
  return x_.repeat(json_character(x_, CodePoints::all()), least, most);
}

Expr JsonText::quoted(Expr inside) { return x_.sequence({x_.text("\""), inside, x_.text("\"")}); }

Expr JsonText::value() {
  if (any_ != nothing) return any_;
  const std::int32_t rule = x_.declare("any JSON");
  any_ = x_.rule(rule);
  const Expr pair = member(string(), any_);
  x_.define(rule, x_.either({x_.text("null"), x_.text("true"), x_.text("false"), number(), string(),
                             array({}, any_, 0, no_limit), object({}, pair, 0, no_limit)}));
  return any_;
}

Expr JsonText::literal(const nlohmann::ordered_json& value) {
  if (value.is_string()) {
    return x_.text(cat("\"", json_spelt(value.get_ref<const std::string&>()), "\""));
  }
  if (value.is_array()) {
    std::vector<Expr> items;
    for (const auto& item : value) items.push_back(literal(item));
    const auto n = static_cast<std::int32_t>(items.size());
    return array(items, nothing, n, n);
  }
  if (value.is_object()) {
    std::vector<Member> members;
    for (const auto& [key, item] : value.items()) {
      members.push_back({member(x_.text(cat("\"", json_spelt(key), "\"")), literal(item)), true});
    }
    return object(members, nothing, 0, no_limit);
  }
  const Expr text = x_.text(value.dump());
  if (!value.is_number_float()) return text;
  const double number_value = value.get<double>();
  constexpr double exact = 9007199254740992.0;
  if (std::trunc(number_value) != number_value || std::abs(number_value) > exact) return text;
  return x_.either({text, x_.text(std::to_string(static_cast<std::int64_t>(number_value)))});
}

Expr JsonText::in_brackets(char open, Expr inside, char close) {
  return x_.sequence({x_.text({&open, 1}), space_, inside, x_.text({&close, 1})});
}

Expr JsonText::array(std::span<const Expr> first, Expr rest, std::int32_t least,
                     std::int32_t most) {
  if (most != no_limit && least > most) return nothing;
  std::size_t n = first.size();
  if (most != no_limit) n = std::min(n, static_cast<std::size_t>(most));
  const auto count = static_cast<std::int32_t>(n);
  const bool has_room = most == no_limit || most > count;
  // Behind i items: the end or, behind a comma, another.
  Expr more = x_.repeat(has_room ? x_.concat(comma_, rest) : nothing, std::max(0, least - count),
                        most == no_limit ? no_limit : most - count);
  Expr item = n == 0 ? rest : first[n - 1];
  if (n == 0) {
    const std::int32_t others = most == no_limit ? no_limit : most - 1;
    if (most == 0) return in_brackets('[', empty, ']');
    more = x_.repeat(x_.concat(comma_, rest), std::max(0, least - 1), others);
  }
  Expr items = x_.concat(item, more);
  for (std::size_t i = n > 0 ? n - 1 : 0; i > 0; --i) {
    Expr following = x_.concat(comma_, items);
    if (static_cast<std::int32_t>(i) >= least) following = x_.optional(following);
    items = x_.concat(first[i - 1], following);
  }
  items = x_.concat(items, space_);
  return in_brackets('[', least > 0 ? items : x_.optional(items), ']');
}

Expr JsonText::member(Expr key, Expr value) { return x_.sequence({key, colon_, value}); }

Expr JsonText::object(std::span<const Member> members, Expr more, std::int32_t least,
                      std::int32_t most) {
  const std::size_t n = members.size();
  const bool counts = least > 0 || most != no_limit;
  // Members so far count up to where another changes nothing.
  const auto enough = static_cast<std::size_t>(most != no_limit ? most : least);
  const std::size_t counted = counts ? std::min(n, enough) : 0;
  if ((n + 1) * (counted + 1) > most_counted) {
    throw_usage(cat("JSON schema: minProperties or maxProperties of ", n,
                    " properties; leave it out, or declare fewer"));
  }
  const auto may_end = [&](std::size_t so_far) {
    return static_cast<std::int32_t>(so_far) >= least;
  };
  const auto may_go_on = [&](std::size_t so_far) {
    return most == no_limit || static_cast<std::int32_t>(so_far) < most;
  };
  // From the last member to the first; by the number of members so far: what starts with a member.
  // A member's text is followed by the end or a comma and the next one.
  std::vector<Expr> rest(counted + 1);
  bool required_left = false;
  const auto following = [&](const std::vector<Expr>& from, std::size_t so_far, bool needs_more) {
    const std::size_t c = std::min(so_far, counted);
    const Expr next = may_go_on(so_far) ? x_.concat(comma_, from[c]) : nothing;
    return needs_more || !may_end(so_far) ? next : x_.optional(next);
  };
  for (std::size_t c = 0; c <= counted; ++c) {
    // `more`, behind c others (or at least so many).
    const auto so_far = static_cast<std::int32_t>(c);
    if (!may_go_on(c)) {
      rest[c] = nothing;
      continue;
    }
    rest[c] = x_.concat(more, x_.repeat(x_.concat(comma_, more), std::max(0, least - so_far - 1),
                                        most == no_limit ? no_limit : most - so_far - 1));
  }
  for (std::size_t i = n; i > 0; --i) {
    const Member& one = members[i - 1];
    std::vector<Expr> longer(counted + 1);
    for (std::size_t c = 0; c <= counted; ++c) {
      const Expr with =
          may_go_on(c) ? x_.concat(one.text, following(rest, c + 1, required_left)) : nothing;
      longer[c] = one.required ? with : x_.either({with, rest[c]});
    }
    rest = std::move(longer);
    required_left = required_left || one.required;
  }
  Expr inside = x_.concat(rest[0], space_);
  if (!required_left && least <= 0) inside = x_.optional(inside);
  return in_brackets('{', inside, '}');
}

}  // namespace coppice::constraints
