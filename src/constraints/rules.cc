// What is known of rules once all are defined: which never end, which may be empty, and whether one
// begins with itself.
#include <algorithm>

#include "base/error.h"
#include "constraints/expressions.h"

namespace coppice::constraints {

// Parts have lower numbers than wholes, so one pass in order carries what is known of rules through
// all expressions; passes are repeated while they teach something about rules.
void Expressions::find_nullable() {
  for (bool changed = true; changed;) {
    changed = false;
    count(static_cast<std::int64_t>(nodes_.size()));
    for (Node& node : nodes_) node.nullable = is_nullable(node);
    for (Rule& rule : rules_) {
      if (!rule.nullable && rule.body >= 0 && nullable(rule.body)) changed = rule.nullable = true;
    }
  }
}

// Rules that cannot end, such as a: "x" a, have no text. Nor has what needs them.
Expr Expressions::without_endless(Expr start) {
  std::vector<bool> ends(rules_.size(), false), ending(nodes_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    count(static_cast<std::int64_t>(nodes_.size()));
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const auto part_ends = [&](Expr e) { return ending[static_cast<std::size_t>(e)]; };
      switch (node.kind) {
        case Kind::no_text:
          break;
        case Kind::concat:
          ending[i] = part_ends(node.a) && part_ends(node.b);
          break;
        case Kind::either:
          ending[i] = std::ranges::any_of(list(node), part_ends);
          break;
        case Kind::repeat:
          ending[i] = node.least == 0 || part_ends(node.a);
          break;
        case Kind::rule:
          ending[i] = ends[static_cast<std::size_t>(node.a)];
          break;
        default:
          ending[i] = true;
      }
    }
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      const Expr body = rules_[r].body;
      if (!ends[r] && body >= 0 && ending[static_cast<std::size_t>(body)]) {
        changed = ends[r] = true;
      }
    }
  }
  if (std::ranges::all_of(ends, [](bool yes) { return yes; })) return start;

  std::vector<Expr> became(nodes_.size());
  const auto part = [&](Expr e) { return became[static_cast<std::size_t>(e)]; };
  for (std::size_t i = 0, n = became.size(); i < n; ++i) {
    const Node node = nodes_[i];
    became[i] = static_cast<Expr>(i);
    if (node.kind == Kind::concat) {
      became[i] = concat(part(node.a), part(node.b));
    } else if (node.kind == Kind::either) {
      std::vector<Expr> parts = members(static_cast<Expr>(i));
      for (Expr& one : parts) one = part(one);
      became[i] = either(std::move(parts));
    } else if (node.kind == Kind::repeat) {
      became[i] = repeat(part(node.a), node.least, node.most);
    } else if (node.kind == Kind::rule && !ends[static_cast<std::size_t>(node.a)]) {
      became[i] = nothing;
    }
  }
  for (Rule& rule : rules_) {
    if (rule.body >= 0) rule.body = part(rule.body);
  }
  return part(start);
}

// The parts that may stand at a text's beginning.
std::vector<Expr> Expressions::left_parts(Expr e) const {
  const Node& node = at(e);
  switch (node.kind) {
    case Kind::concat: {
      std::vector<Expr> parts;
      for (Expr chain = e;; chain = at(chain).b) {
        const bool more = at(chain).kind == Kind::concat;
        parts.push_back(more ? at(chain).a : chain);
        if (!more || !nullable(parts.back())) return parts;
      }
    }
    case Kind::either:
    case Kind::both:
      return members(e);
    case Kind::repeat:
    case Kind::complement:
      return {node.a};
    case Kind::rule:
      return {rules_[static_cast<std::size_t>(node.a)].body};
    default:
      return {};
  }
}

// Depth first along left parts. A cycle goes through a rule that begins with itself: its derivative
// would need itself. Finds how deep functions recurse, too.
void Expressions::refuse_left_recursion() {
  enum class Colour : std::uint8_t { fresh, open, done };
  std::vector<Colour> colours(nodes_.size(), Colour::fresh);
  struct Visit {
    Expr e;
    std::vector<Expr> parts;
    std::size_t next = 0;
    int depth = 0;
  };
  std::vector<Visit> path;
  for (std::size_t root = 0; root < nodes_.size(); ++root) {
    if (colours[root] != Colour::fresh) continue;
    path.push_back({static_cast<Expr>(root), left_parts(static_cast<Expr>(root))});
    colours[root] = Colour::open;
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.next == top.parts.size()) {
        const auto i = static_cast<std::size_t>(top.e);
        colours[i] = Colour::done;
        nodes_[i].depth = static_cast<std::uint16_t>(top.depth);
        const int depth = top.depth + 1;
        path.pop_back();
        if (!path.empty()) path.back().depth = std::max(path.back().depth, depth);
        if (depth > deepest_expression) {
          throw_usage(cat("the constraint is nested more than ", deepest_expression,
                          " levels deep; make it simpler"));
        }
        continue;
      }
      const Expr part = top.parts[top.next++];
      count(1);
      Colour& colour = colours[static_cast<std::size_t>(part)];
      if (colour == Colour::done) {
        top.depth = std::max(top.depth, at(part).depth + 1);
      } else if (colour == Colour::fresh) {
        colour = Colour::open;
        path.push_back({part, left_parts(part)});
      } else {
        std::string name = "a rule";
        for (std::size_t i = path.size(); i > 0; --i) {
          const Expr e = path[i - 1].e;
          if (at(e).kind == Kind::rule) name = rules_[static_cast<std::size_t>(at(e).a)].name;
          if (e == part) break;
        }
        throw_usage(cat(name,
                        " begins with itself, so no text tells how often; put what it repeats "
                        "before the recursion, or write it as a repeat"));
      }
    }
  }
}

Expr Expressions::finish(Expr start) {
  start = without_endless(start);
  find_nullable();
  refuse_left_recursion();
  finished_ = true;
  return start;
}

}  // namespace coppice::constraints
