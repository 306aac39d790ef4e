// What remains of an expression behind a byte.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "constraints/expressions.h"

namespace coppice::constraints {

std::vector<Expressions::Edge> Expressions::edges(Expr e) {
  const auto i = static_cast<std::size_t>(e);
  if (i >= edge_lists_.size()) edge_lists_.resize(nodes_.size());
  if (edge_lists_[i].begin < 0) {
    std::vector<Edge> found = raw_edges(e);
    const Kind kind_of_e = at(e).kind;
    if (kind_of_e == Kind::both || kind_of_e == Kind::complement || kind_of_e == Kind::multiple) {
      std::erase_if(found, [&](const Edge& edge) { return !is_alive(edge.to); });
    }
    if (i >= edge_lists_.size()) edge_lists_.resize(nodes_.size());
    if (edge_pool_.size() + found.size() > most_members) {
      throw_failure("the constraint takes too much memory; make it simpler");
    }
    edge_lists_[i] = {static_cast<std::int32_t>(edge_pool_.size()),
                      static_cast<std::int32_t>(found.size())};
    edge_pool_.insert(edge_pool_.end(), found.begin(), found.end());
    return found;
  }
  const auto begin = edge_pool_.begin() + edge_lists_[i].begin;
  return {begin, begin + edge_lists_[i].size};
}

std::vector<Expressions::Edge> Expressions::raw_edges(Expr e) {
  const Node node = at(e);
  count(8);
  switch (node.kind) {
    case Kind::no_text:
    case Kind::empty_text:
      return {};
    case Kind::bytes:
      return {{node.a, empty}};
    case Kind::concat: {
      std::vector<Edge> parts;
      for (Expr chain = e;;) {
        const bool more = at(chain).kind == Kind::concat;
        const Expr part = more ? at(chain).a : chain;
        const Expr after = more ? at(chain).b : empty;
        for (const Edge& edge : edges(part)) parts.push_back({edge.set, concat(edge.to, after)});
        if (!more || !nullable(part)) break;
        chain = after;
      }
      return merged(parts);
    }
    case Kind::either: {
      std::vector<Edge> parts;
      for (const Expr part : members(e)) {
        const std::vector<Edge> some = edges(part);
        parts.insert(parts.end(), some.begin(), some.end());
      }
      return merged(parts);
    }
    case Kind::both:
      return intersected(members(e));
    case Kind::complement: {
      std::vector<Edge> found;
      ByteSet others = ByteSet::all();
      for (const Edge& edge : edges(node.a)) {
        others = others - set(edge.set);
        found.push_back({edge.set, complement(edge.to)});
      }
      if (!others.empty()) found.push_back({intern_set(others), anything()});
      return found;
    }
    case Kind::repeat: {
      const std::int32_t fewer = nullable(node.a) ? 0 : std::max<std::int32_t>(node.least - 1, 0);
      const Expr again = repeat(node.a, fewer, node.most == no_limit ? no_limit : node.most - 1);
      std::vector<Edge> found = edges(node.a);
      for (Edge& edge : found) edge.to = concat(edge.to, again);
      return merged(found);
    }
    case Kind::rule:
      return edges(body(e));
    case Kind::multiple: {
      std::vector<Edge> found;
      const auto add = [&](char byte, std::int64_t remainder, std::int32_t phase) {
        found.push_back(
            {intern_set(ByteSet::range(byte, byte)),
             multiple(static_cast<std::int32_t>(remainder), phase, node.least, node.most)});
      };
      const bool whole = node.b == 0 || node.b == 2;
      const bool decimal = node.b >= 3 && node.b - 3 < node.most;
      for (int digit = 0; digit < 10 && (whole || decimal); ++digit) {
        const std::int64_t remainder = (std::int64_t{node.a} * 10 + digit) % node.least;
        const std::int32_t zero = node.b == 0 && digit == 0 ? 1 : 2;
        add(static_cast<char>('0' + digit), remainder, whole ? zero : node.b + 1);
      }
      if ((node.b == 1 || node.b == 2) && node.most > 0) add('.', node.a, 3);
      return merged(found);
    }
  }
  return {};
}

// Splits overlapping sets, so that each byte leads to one expression.
std::vector<Expressions::Edge> Expressions::merged(const std::vector<Edge>& parts) {
  if (parts.size() < 2) return parts;
  struct Piece {
    ByteSet bytes;
    std::vector<Expr> to;
  };
  std::vector<Piece> pieces;
  for (const Edge& part : parts) {
    ByteSet left = set(part.set);
    for (std::size_t i = 0, n = pieces.size(); i < n && !left.empty(); ++i) {
      const ByteSet shared = pieces[i].bytes & left;
      if (shared.empty()) continue;
      left = left - shared;
      if (shared == pieces[i].bytes) {
        pieces[i].to.push_back(part.to);
      } else {
        pieces[i].bytes = pieces[i].bytes - shared;
        pieces.push_back({shared, pieces[i].to});
        pieces.back().to.push_back(part.to);
        count(static_cast<std::int64_t>(pieces.back().to.size()));
      }
    }
    if (!left.empty()) pieces.push_back({left, {part.to}});
    count(static_cast<std::int64_t>(pieces.size()));
  }
  std::vector<std::pair<Expr, ByteSet>> found;
  for (Piece& piece : pieces) {
    const Expr to = either(std::move(piece.to));
    const auto same = std::ranges::find(found, to, &std::pair<Expr, ByteSet>::first);
    if (same != found.end()) {
      same->second = same->second | piece.bytes;
    } else if (to != nothing) {
      found.emplace_back(to, piece.bytes);
    }
  }
  std::vector<Edge> result;
  for (const auto& [to, bytes_to_it] : found) result.push_back({intern_set(bytes_to_it), to});
  return result;
}

std::vector<Expressions::Edge> Expressions::intersected(std::span<const Expr> parts) {
  struct Piece {
    ByteSet bytes;
    std::vector<Expr> to;
  };
  std::vector<Piece> pieces = {{ByteSet::all(), {}}};
  for (const Expr part : parts) {
    std::vector<Piece> narrower;
    const std::vector<Edge> some = edges(part);
    for (const Piece& piece : pieces) {
      for (const Edge& edge : some) {
        const ByteSet shared = piece.bytes & set(edge.set);
        if (shared.empty()) continue;
        narrower.push_back({shared, piece.to});
        narrower.back().to.push_back(edge.to);
      }
      count(static_cast<std::int64_t>(some.size()));
    }
    pieces = std::move(narrower);
  }
  std::vector<Edge> found;
  for (Piece& piece : pieces) {
    const Expr to = intersection(std::move(piece.to));
    if (to != nothing) found.push_back({intern_set(piece.bytes), to});
  }
  return merged(found);
}

// Whether an intersection has any text: searches for a state where one may end, and remembers what
// was found on the way. All other expressions have texts, since they are built of parts that have.
bool Expressions::is_alive(Expr e) {
  const auto asks = [&](Expr of) {
    const Node& node = at(of);
    // Whole digits can always be added until a multiple is reached.
    const bool is_stuck = node.kind == Kind::multiple && node.b > 2;
    return node.kind == Kind::both || node.kind == Kind::complement || is_stuck;
  };
  const auto known = [&](Expr of) -> int {
    if (!asks(of)) return of == nothing ? 2 : 1;
    if (at(of).nullable) return 1;
    return at(of).alive;
  };
  if (known(e) != 0) return known(e) == 1;
  struct Seen {
    Expr e;
    std::size_t from;
  };
  std::vector<Seen> seen = {{e, 0}};
  std::unordered_set<Expr> met = {e};
  const auto mark = [&](Expr of, std::int8_t alive) {
    nodes_[static_cast<std::size_t>(of)].alive = alive;
  };
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (const Edge& edge : raw_edges(seen[i].e)) {
      const int state = known(edge.to);
      if (state == 2) continue;
      if (state == 1) {
        for (std::size_t back = i; back != 0; back = seen[back].from) mark(seen[back].e, 1);
        mark(e, 1);
        return true;
      }
      if (met.insert(edge.to).second) seen.push_back({edge.to, i});
    }
  }
  for (const Seen& one : seen) mark(one.e, 2);
  return false;
}

Expr Expressions::next(Expr e, unsigned char byte) {
  const auto i = static_cast<std::size_t>(e);
  if (i < rows_.size() && rows_[i]) return (*rows_[i])[byte];
  if (i >= edge_lists_.size() || edge_lists_[i].begin < 0) edges(e);
  const EdgeList found = edge_lists_[i];
  for (std::int32_t j = found.begin; j < found.begin + found.size; ++j) {
    const Edge& edge = edge_pool_[static_cast<std::size_t>(j)];
    if (set(edge.set).has(byte)) return edge.to;
  }
  return nothing;
}

const Expressions::Row& Expressions::make_row(Expr e) {
  const std::vector<Edge> found = edges(e);
  const auto row = std::make_shared<Row>();
  row->fill(nothing);
  for (const Edge& edge : found) {
    set(edge.set).each([&](int byte) { (*row)[static_cast<std::size_t>(byte)] = edge.to; });
  }
  const auto i = static_cast<std::size_t>(e);
  if (i >= rows_.size()) rows_.resize(nodes_.size() + nodes_.size() / 2);
  rows_[i] = row;
  ++kept_rows_;
  count(64);
  // One call may make many; they are dropped behind it.
  if (kept_rows_ * sizeof(Row) > 4 * transition_cache) {
    throw_failure("the constraint takes too much memory; make it simpler");
  }
  return *rows_[i];
}

void Expressions::trim() {
  if (kept_rows_ * sizeof(Row) > transition_cache) {
    rows_.clear();
    kept_rows_ = 0;
  }
  if (edge_pool_.size() * sizeof(Edge) > transition_cache) {
    edge_pool_ = {};
    edge_lists_ = {};
  }
}

bool Expressions::matches(Expr e, std::string_view text) {
  for (const char c : text) {
    e = next(e, static_cast<unsigned char>(c));
    if (e == nothing) return false;
  }
  return nullable(e);
}

}  // namespace coppice::constraints
