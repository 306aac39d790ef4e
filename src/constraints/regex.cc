#include "constraints/regex.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "constraints/regex_syntax.h"

namespace coppice::constraints {
namespace {

// Sequences that alternatives with assertions are multiplied out to.
constexpr int most_sequences = 256;

class RegexBuilder {
 public:
  RegexBuilder(Expressions& expressions, std::string_view pattern, RegexUse use,
               const std::string& where)
      : x_(expressions), pattern_(pattern), use_(use), where_(where) {}

  Expr build(RegexNode tree) {
    const bool searches = use_ == RegexUse::json_search;
    return whole(in_sequence(std::move(tree)), searches, searches);
  }

 private:
  using Kind = RegexNode::Kind;

  [[noreturn]] void refuse(const char* what) const {
    throw_usage(cat(where_, " ", quote(pattern_), ": ", what));
  }

  static RegexNode in_sequence(RegexNode node) {
    if (node.kind == Kind::sequence) return node;
    RegexNode one{Kind::sequence, {}, {}};
    one.parts.push_back(std::move(node));
    return one;
  }

  Expr character(const CodePoints& set) {
    return use_ == RegexUse::json_search ? json_character(x_, set) : utf8(x_, set);
  }
  Expr any_text() { return x_.repeat(character(CodePoints::all()), 0, no_limit); }

  // Whole texts in which the sequence matches from their beginning, or with more before it
  // (`more_before`), to their end, or with more behind it. Assertions stand for what they say of
  // the whole text.
  Expr whole(RegexNode sequence, bool more_before, bool more_behind) {
    if (++sequences_ > most_sequences) refuse("too many alternatives with ^, $ or (?; split it");
    auto& parts = sequence.parts;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_group = parts[i].kind == Kind::either || parts[i].kind == Kind::sequence;
      if (!is_group || !parts[i].has_assertion()) continue;
      std::vector<RegexNode> alternatives;
      if (parts[i].kind == Kind::either) {
        alternatives = parts[i].parts;
      } else {
        alternatives = {parts[i]};
      }
      std::vector<Expr> all;
      for (RegexNode& alternative : alternatives) {
        RegexNode one{Kind::sequence, {}, {}};
        one.parts.assign(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i));
        RegexNode inner = in_sequence(std::move(alternative));
        for (RegexNode& part : inner.parts) one.parts.push_back(std::move(part));
        one.parts.insert(one.parts.end(), parts.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                         parts.end());
        all.push_back(whole(std::move(one), more_before, more_behind));
      }
      return x_.either(std::move(all));
    }
    while (!parts.empty() && parts.front().kind == Kind::begin) {
      more_before = false;
      parts.erase(parts.begin());
    }
    while (!parts.empty() && parts.back().kind == Kind::end) {
      more_behind = false;
      parts.pop_back();
    }
    Expr text = more_behind ? any_text() : empty;
    for (std::size_t i = parts.size(); i > 0; --i) {
      const RegexNode& part = parts[i - 1];
      if (part.kind == Kind::ahead || part.kind == Kind::not_ahead) {
        const Expr seen = whole(in_sequence(part.parts.front()), false, true);
        text = x_.both({text, part.kind == Kind::ahead ? seen : x_.complement(seen)});
      } else {
        text = x_.concat(plain(part), text);
      }
    }
    return more_before ? x_.concat(any_text(), text) : text;
  }

  Expr plain(const RegexNode& node) {
    std::vector<Expr> parts;
    switch (node.kind) {
      case Kind::characters:
        return character(node.characters);
      case Kind::sequence:
        for (const RegexNode& part : node.parts) parts.push_back(plain(part));
        return x_.sequence(parts);
      case Kind::either:
        for (const RegexNode& part : node.parts) parts.push_back(plain(part));
        return x_.either(std::move(parts));
      case Kind::repeat:
        return x_.repeat(plain(node.parts.front()), node.least, node.most);
      default:
        refuse(
            "^, $ or (?...) where more of the text may stand on its side, or in a repeat, is not "
            "supported; put it at the expression's beginning or end");
    }
  }

  Expressions& x_;
  std::string_view pattern_;
  RegexUse use_;
  const std::string& where_;
  int sequences_ = 0;
};

}  // namespace

Expr compile_regex(Expressions& expressions, std::string_view pattern, RegexUse use,
                   const std::string& where) {
  return RegexBuilder(expressions, pattern, use, where).build(parse_regex(pattern, where));
}

}  // namespace coppice::constraints
