// Languages over bytes as expressions, each kept once, and what remains of them behind a byte.
//
// An expression is a set of texts. What may follow a text of the language is again an expression,
// the derivative (Brzozowski 1964), so one int is the whole state of an automaton, its stack
// included: a concatenation's tail is the stack, and equal stacks are one. Repeats are counters:
// the derivative of x{3,9} is what x leaves, then x{2,8}.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/byte_set.h"
#include "constraints/limits.h"

namespace coppice::constraints {

/// Number of an expression.
using Expr = std::int32_t;
inline constexpr Expr nothing = 0;  ///< no text
inline constexpr Expr empty = 1;    ///< the empty text alone
inline constexpr std::int32_t no_limit = -1;

/// Not thread safe; a copy goes on alone. Expressions are built from parts that exist, rules apart,
/// so that a part has a lower number than the whole.
class Expressions {
 public:
  enum class Kind : std::uint8_t {
    no_text,
    empty_text,
    bytes,       ///< one byte of a set
    concat,      ///< first, then rest; the first is no concat
    either,      ///< union
    both,        ///< intersection
    complement,  ///< all texts over bytes but these
    repeat,
    rule,      ///< what a rule's body is: recursion
    multiple,  ///< decimal digits of a multiple
  };

  Expressions();

  Expr bytes(const ByteSet& set);
  Expr text(std::string_view literal);
  Expr concat(Expr first, Expr rest);
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) {
    return sequence(std::span<const Expr>(parts.begin(), parts.size()));
  }
  Expr either(std::vector<Expr> parts);
  /// Only of parts without rules.
  Expr both(std::vector<Expr> parts);
  Expr complement(Expr part);
  Expr repeat(Expr part, std::int32_t least, std::int32_t most);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  /// All texts over bytes.
  Expr anything() { return complement(nothing); }
  /// A number without sign and exponent, of at most `decimals` decimals, that is a multiple of
  /// `modulus` units of the last of them.
  Expr multiple(std::int32_t modulus, std::int32_t decimals);

  /// A rule may be used before it is defined. The name is for messages.
  std::int32_t declare(std::string name);
  void define(std::int32_t rule, Expr body);
  Expr rule(std::int32_t number);
  bool is_defined(std::int32_t rule) const;
  const std::string& name(std::int32_t rule) const;

  /// To be called once, when all rules are defined: leaves out what never ends, and throws
  /// Error(usage) if a rule begins with itself. Returns what became of `start`.
  Expr finish(Expr start);

  /// Whether the empty text is in it. Of what has rules, after finish().
  bool nullable(Expr e) const { return at(e).nullable; }
  /// Whether it has no rules in it.
  bool regular(Expr e) const { return at(e).regular; }
  Kind kind(Expr e) const { return at(e).kind; }
  /// Of a concat: its parts; of a repeat, complement: the part.
  Expr first(Expr e) const { return at(e).a; }
  Expr rest(Expr e) const { return at(e).b; }
  std::int32_t least(Expr e) const { return at(e).least; }
  std::int32_t most(Expr e) const { return at(e).most; }
  Expr body(Expr rule_expression) const;
  std::vector<Expr> members(Expr e) const;
  /// A copy: new sets move the others.
  ByteSet set(std::int32_t number) const { return sets_[static_cast<std::size_t>(number)]; }
  ByteSet set_of(Expr bytes_expression) const { return set(at(bytes_expression).a); }

  /// What remains behind one byte out of a set. Sets of one expression's edges are disjoint; what
  /// remains is never empty of texts.
  struct Edge {
    std::int32_t set;
    Expr to;
  };
  std::vector<Edge> edges(Expr e);
  /// What remains behind one byte; `nothing` if it may not follow.
  Expr next(Expr e, unsigned char byte);
  /// The same for all bytes.
  using Row = std::array<Expr, 256>;
  const Row& row(Expr e) {
    const auto i = static_cast<std::size_t>(e);
    return i < rows_.size() && rows_[i] ? *rows_[i] : make_row(e);
  }
  /// Whether the whole text is in it.
  bool matches(Expr e, std::string_view text);

  /// Starts counting the steps of a call; count() throws Error(failure) beyond most_steps.
  void restart() { steps_ = 0; }
  void count(std::int64_t steps) {
    steps_ += steps;
    if (steps_ > most_steps) throw_too_long();
  }
  /// Drops cached transitions if they take too much. No row may be in use.
  void trim();
  std::size_t size() const { return nodes_.size(); }
  std::size_t memory() const;
  /// How much of what may be interned is: 1 where the next new expression throws.
  double filled() const;

 private:
  struct Node {
    Kind kind;
    bool nullable = false, regular = true;
    std::int8_t alive = 0;    ///< of both, complement, multiple: 0 unknown, 1 it has texts, 2 none
    std::uint16_t depth = 0;  ///< how deep functions recurse into it
    std::int32_t a = 0, b = 0, least = 0, most = 0;
  };
  struct EdgeList {
    std::int32_t begin = -1, size = 0;
  };
  const Node& at(Expr e) const { return nodes_[static_cast<std::size_t>(e)]; }
  std::span<const Expr> list(const Node& node) const {
    return {members_.data() + node.a, static_cast<std::size_t>(node.b)};
  }
  std::int32_t intern_set(const ByteSet& set);
  /// `parts`: of either and both, which then are its a and b.
  Expr intern(Node node, std::span<const Expr> parts = {});
  void complete(Node& node) const;
  bool is_nullable(const Node& node) const;
  bool is_alive(Expr e);
  Expr intersection(std::vector<Expr> parts);
  /// Parts of either or both, sorted, each once: of a part that is a `whole` itself its members.
  std::vector<Expr> flattened(std::span<const Expr> parts, Kind whole, Expr neutral) const;
  Expr multiple(std::int32_t remainder, std::int32_t phase, std::int32_t modulus,
                std::int32_t decimals);
  /// edges(), those included behind which no text is left.
  std::vector<Edge> raw_edges(Expr e);
  std::vector<Edge> merged(const std::vector<Edge>& parts);
  std::vector<Edge> intersected(std::span<const Expr> parts);
  Expr without_endless(Expr start);
  void find_nullable();
  void refuse_left_recursion();
  std::vector<Expr> left_parts(Expr e) const;
  const Row& make_row(Expr e);
  [[noreturn]] static void throw_too_long();

  std::vector<Node> nodes_;
  std::vector<std::int32_t> places_;  ///< hash table of nodes
  std::vector<Expr> members_;         ///< of either and both
  std::vector<ByteSet> sets_;
  std::vector<std::int32_t> set_places_;
  struct Rule {
    std::string name;
    Expr body = -1;
    bool nullable = false;
  };
  std::vector<Rule> rules_;
  bool finished_ = false;
  std::vector<EdgeList> edge_lists_;  ///< by expression
  std::vector<Edge> edge_pool_;
  std::vector<std::shared_ptr<const Row>> rows_;
  std::size_t kept_rows_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace coppice::constraints
