#include "constraints/expressions.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace coppice::constraints {
namespace {

std::uint64_t stirred(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

[[noreturn]] void throw_too_large() {
  throw_failure(
      "the constraint takes too much memory; make it simpler: fewer alternatives, or smaller "
      "repeats within repeats");
}

// The sum of two limits, where none is more than any number.
std::int32_t sum_of(std::int32_t a, std::int32_t b) {
  if (a == no_limit || b == no_limit) return no_limit;
  return a > most_repeats - b ? no_limit : a + b;
}

}  // namespace

Expressions::Expressions() : places_(1024, -1), set_places_(64, -1) {
  nodes_.push_back({Kind::no_text});
  nodes_.push_back({Kind::empty_text, true});
}

void Expressions::throw_too_long() {
  throw_failure(
      "the constraint takes too long; make it simpler: fewer alternatives, or smaller repeats "
      "within repeats");
}

std::int32_t Expressions::intern_set(const ByteSet& set) {
  if (sets_.size() * 2 >= set_places_.size()) {
    std::vector<std::int32_t> larger(set_places_.size() * 2, -1);
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      std::uint64_t hash = 1;
      for (const std::uint64_t word : sets_[i].words) hash = stirred(hash, word);
      std::size_t place = hash & (larger.size() - 1);
      while (larger[place] >= 0) place = (place + 1) & (larger.size() - 1);
      larger[place] = static_cast<std::int32_t>(i);
    }
    set_places_ = std::move(larger);
  }
  std::uint64_t hash = 1;
  for (const std::uint64_t word : set.words) hash = stirred(hash, word);
  std::size_t place = hash & (set_places_.size() - 1);
  while (set_places_[place] >= 0) {
    const std::int32_t found = set_places_[place];
    if (sets_[static_cast<std::size_t>(found)] == set) return found;
    place = (place + 1) & (set_places_.size() - 1);
  }
  if (sets_.size() >= most_expressions) throw_too_large();
  set_places_[place] = static_cast<std::int32_t>(sets_.size());
  sets_.push_back(set);
  return set_places_[place];
}

Expr Expressions::intern(Node node, std::span<const Expr> parts) {
  const auto hash_of = [&](const Node& n, std::span<const Expr> of) {
    std::uint64_t hash = static_cast<std::uint64_t>(n.kind) + 1;
    if (of.empty()) {
      hash = stirred(hash, static_cast<std::uint64_t>(n.a) << 32 | static_cast<std::uint32_t>(n.b));
      hash = stirred(
          hash, static_cast<std::uint64_t>(n.least) << 32 | static_cast<std::uint32_t>(n.most));
    }
    for (const Expr part : of) hash = stirred(hash, static_cast<std::uint32_t>(part));
    return hash;
  };
  const auto parts_of = [&](const Node& n) {
    const bool has_list = n.kind == Kind::either || n.kind == Kind::both;
    return has_list ? list(n) : std::span<const Expr>();
  };
  if (nodes_.size() * 2 >= places_.size()) {
    std::vector<std::int32_t> larger(places_.size() * 2, -1);
    for (std::size_t i = 2; i < nodes_.size(); ++i) {
      std::size_t place = hash_of(nodes_[i], parts_of(nodes_[i])) & (larger.size() - 1);
      while (larger[place] >= 0) place = (place + 1) & (larger.size() - 1);
      larger[place] = static_cast<std::int32_t>(i);
    }
    places_ = std::move(larger);
  }
  count(4 + static_cast<std::int64_t>(parts.size()));
  std::size_t place = hash_of(node, parts) & (places_.size() - 1);
  while (places_[place] >= 0) {
    const Node& other = at(places_[place]);
    if (other.kind == node.kind) {
      const std::span<const Expr> others = parts_of(other);
      const bool equal = parts.empty()
                             ? other.a == node.a && other.b == node.b &&
                                   other.least == node.least && other.most == node.most
                             : std::equal(parts.begin(), parts.end(), others.begin(), others.end());
      if (equal) return places_[place];
    }
    place = (place + 1) & (places_.size() - 1);
  }
  if (nodes_.size() >= most_expressions || members_.size() + parts.size() > most_members) {
    throw_too_large();
  }
  if (!parts.empty()) {
    node.a = static_cast<std::int32_t>(members_.size());
    node.b = static_cast<std::int32_t>(parts.size());
    members_.insert(members_.end(), parts.begin(), parts.end());
  }
  complete(node);
  if (finished_ && node.depth > deepest_expression) {
    throw_failure("the constraint is nested too deep; make it simpler");
  }
  const auto number = static_cast<Expr>(nodes_.size());
  places_[place] = number;
  nodes_.push_back(node);
  return number;
}

bool Expressions::is_nullable(const Node& node) const {
  const auto has_empty = [&](Expr e) { return nullable(e); };
  switch (node.kind) {
    case Kind::no_text:
    case Kind::bytes:
      return false;
    case Kind::empty_text:
      return true;
    case Kind::concat:
      return nullable(node.a) && nullable(node.b);
    case Kind::either:
      return std::ranges::any_of(list(node), has_empty);
    case Kind::both:
      return std::ranges::all_of(list(node), has_empty);
    case Kind::complement:
      return !nullable(node.a);
    case Kind::repeat:
      return node.least == 0 || nullable(node.a);
    case Kind::rule:
      return rules_[static_cast<std::size_t>(node.a)].nullable;
    case Kind::multiple: {
      if (node.b == 0 || node.b == 3) return false;
      std::int64_t remainder = node.a;
      for (int left = node.b < 3 ? node.most : node.most - (node.b - 3); left > 0; --left) {
        remainder = remainder * 10 % node.least;
      }
      return remainder == 0;
    }
  }
  return false;
}

// What follows from a node's parts.
void Expressions::complete(Node& node) const {
  node.nullable = is_nullable(node);
  const auto take = [&](Expr part, int deeper) {
    node.regular = node.regular && regular(part);
    node.depth = static_cast<std::uint16_t>(
        std::max<int>(node.depth, std::min(at(part).depth + deeper, 60000)));
  };
  switch (node.kind) {
    case Kind::concat:
      take(node.a, 1);
      take(node.b, 0);  // functions go through a chain in a loop
      break;
    case Kind::either:
    case Kind::both:
      for (const Expr part : list(node)) take(part, 1);
      break;
    case Kind::complement:
    case Kind::repeat:
      take(node.a, 1);
      break;
    case Kind::rule:
      node.regular = false;
      if (finished_) take(rules_[static_cast<std::size_t>(node.a)].body, 1);
      node.regular = false;
      break;
    default:
      break;
  }
}

Expr Expressions::bytes(const ByteSet& set) {
  if (set.empty()) return nothing;
  return intern({Kind::bytes, false, true, 0, 0, intern_set(set)});
}

Expr Expressions::text(std::string_view literal) {
  Expr all = empty;
  for (std::size_t i = literal.size(); i > 0; --i) {
    const auto byte = static_cast<unsigned char>(literal[i - 1]);
    all = concat(bytes(ByteSet::range(byte, byte)), all);
  }
  return all;
}

Expr Expressions::sequence(std::span<const Expr> parts) {
  Expr all = empty;
  for (std::size_t i = parts.size(); i > 0; --i) all = concat(parts[i - 1], all);
  return all;
}

Expr Expressions::concat(Expr head, Expr tail) {
  std::vector<Expr> chain;
  for (; at(head).kind == Kind::concat; head = at(head).b) chain.push_back(at(head).a);
  chain.push_back(head);
  for (std::size_t i = chain.size(); i > 0; --i) {
    const Expr part = chain[i - 1];
    if (part == nothing || tail == nothing) return nothing;
    if (part == empty) continue;
    if (tail == empty) {
      tail = part;
      continue;
    }
    // Two repeats of one part are one.
    if (at(part).kind == Kind::repeat) {
      const bool is_chain = at(tail).kind == Kind::concat;
      const Expr second = is_chain ? at(tail).a : tail;
      if (at(second).kind == Kind::repeat && at(second).a == at(part).a) {
        const Node one = at(part), two = at(second);
        const Expr after = is_chain ? at(tail).b : empty;
        const std::int32_t least_of_both = sum_of(one.least, two.least);
        if (least_of_both != no_limit) {
          tail = concat(repeat(one.a, least_of_both, sum_of(one.most, two.most)), after);
          continue;
        }
      }
    }
    tail = intern({Kind::concat, false, true, 0, 0, part, tail});
  }
  return tail;
}

std::vector<Expr> Expressions::flattened(std::span<const Expr> parts, Kind whole,
                                         Expr neutral) const {
  std::vector<Expr> flat;
  for (const Expr part : parts) {
    if (part == neutral) continue;
    if (at(part).kind == whole) {
      const auto inner = list(at(part));
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  return flat;
}

Expr Expressions::either(std::vector<Expr> parts) {
  std::vector<Expr> flat = flattened(parts, Kind::either, nothing);
  if (flat.empty()) return nothing;
  count(static_cast<std::int64_t>(flat.size()));
  if (flat.size() > 1) {
    // Alternatives that differ in their first byte alone, or in how often they repeat their first
    // part, are one.
    struct Headed {
      Expr same, rest, whole;
    };
    std::vector<Headed> byte_headed, repeat_headed;
    std::vector<Expr> others;
    for (const Expr part : flat) {
      const bool is_chain = at(part).kind == Kind::concat;
      const Expr head = is_chain ? at(part).a : part;
      const Expr after = is_chain ? at(part).b : empty;
      if (at(head).kind == Kind::bytes) {
        byte_headed.push_back({0, after, part});
      } else if (at(head).kind == Kind::repeat) {
        repeat_headed.push_back({at(head).a, after, part});
      } else {
        others.push_back(part);
      }
    }
    const auto by_rest = [](const Headed& a, const Headed& b) {
      return a.rest != b.rest ? a.rest < b.rest : a.same < b.same;
    };
    const auto head_of = [&](Expr part) {
      return at(part).kind == Kind::concat ? at(part).a : part;
    };
    std::stable_sort(byte_headed.begin(), byte_headed.end(), by_rest);
    for (std::size_t i = 0; i < byte_headed.size();) {
      std::size_t end = i + 1;
      while (end < byte_headed.size() && byte_headed[end].rest == byte_headed[i].rest) ++end;
      if (end == i + 1) {
        others.push_back(byte_headed[i].whole);
      } else {
        ByteSet set;
        for (std::size_t j = i; j < end; ++j) set = set | set_of(head_of(byte_headed[j].whole));
        others.push_back(concat(bytes(set), byte_headed[i].rest));
      }
      i = end;
    }
    std::stable_sort(repeat_headed.begin(), repeat_headed.end(), by_rest);
    for (std::size_t i = 0; i < repeat_headed.size();) {
      std::size_t end = i + 1;
      while (end < repeat_headed.size() && repeat_headed[end].rest == repeat_headed[i].rest &&
             repeat_headed[end].same == repeat_headed[i].same) {
        ++end;
      }
      if (end == i + 1) {
        others.push_back(repeat_headed[i].whole);
      } else {
        std::vector<std::pair<std::int32_t, std::int32_t>> intervals;
        for (std::size_t j = i; j < end; ++j) {
          const Node& node = at(head_of(repeat_headed[j].whole));
          intervals.emplace_back(node.least, node.most);
        }
        std::sort(intervals.begin(), intervals.end());
        const Expr same = repeat_headed[i].same, after = repeat_headed[i].rest;
        auto open = intervals.front();
        for (std::size_t j = 1; j <= intervals.size(); ++j) {
          if (j < intervals.size() &&
              (open.second == no_limit || intervals[j].first <= open.second + 1)) {
            if (open.second != no_limit) {
              open.second = intervals[j].second == no_limit
                                ? no_limit
                                : std::max(open.second, intervals[j].second);
            }
            continue;
          }
          others.push_back(concat(repeat(same, open.first, open.second), after));
          if (j < intervals.size()) open = intervals[j];
        }
      }
      i = end;
    }
    flat = std::move(others);
    std::sort(flat.begin(), flat.end());
    flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  }
  if (flat.size() == 1) return flat.front();
  if (flat.size() > most_alternatives) {
    throw_failure(cat("the constraint leaves more than ", most_alternatives,
                      " alternatives open at once; make it simpler"));
  }
  return intern({Kind::either}, flat);
}

Expr Expressions::intersection(std::vector<Expr> parts) {
  const Expr all_texts = anything();
  const std::vector<Expr> flat = flattened(parts, Kind::both, all_texts);
  if (flat.empty()) return all_texts;
  if (flat.size() == 1 || flat.front() == nothing) return flat.front();
  if (flat.front() == empty) {
    return std::ranges::all_of(flat, [&](Expr e) { return nullable(e); }) ? empty : nothing;
  }
  return intern({Kind::both}, flat);
}

Expr Expressions::both(std::vector<Expr> parts) {
  const Expr all = intersection(std::move(parts));
  return is_alive(all) ? all : nothing;
}

Expr Expressions::complement(Expr part) {
  if (at(part).kind == Kind::complement) return at(part).a;
  return intern({Kind::complement, false, true, 0, 0, part});
}

Expr Expressions::repeat(Expr part, std::int32_t lowest, std::int32_t highest) {
  if (highest == 0 || part == empty) return empty;
  if (part == nothing) return lowest == 0 ? empty : nothing;
  if (lowest == 1 && highest == 1) return part;
  const Node& node = at(part);
  if (node.kind == Kind::repeat && node.least == 0 && node.most == no_limit) return part;
  return intern({Kind::repeat, false, true, 0, 0, part, 0, lowest, highest});
}

Expr Expressions::multiple(std::int32_t modulus, std::int32_t decimals) {
  return multiple(0, 0, modulus, decimals);
}

Expr Expressions::multiple(std::int32_t remainder, std::int32_t phase, std::int32_t modulus,
                           std::int32_t decimals) {
  return intern({Kind::multiple, false, true, 0, 0, remainder, phase, modulus, decimals});
}

std::int32_t Expressions::declare(std::string name) {
  if (rules_.size() >= most_expressions / 16) throw_too_large();
  rules_.push_back({std::move(name)});
  return static_cast<std::int32_t>(rules_.size()) - 1;
}

void Expressions::define(std::int32_t rule, Expr body) {
  rules_[static_cast<std::size_t>(rule)].body = body;
}

Expr Expressions::rule(std::int32_t number) {
  return intern({Kind::rule, false, false, 0, 0, number});
}

bool Expressions::is_defined(std::int32_t rule) const {
  return rules_[static_cast<std::size_t>(rule)].body >= 0;
}

const std::string& Expressions::name(std::int32_t rule) const {
  return rules_[static_cast<std::size_t>(rule)].name;
}

Expr Expressions::body(Expr rule_expression) const {
  return rules_[static_cast<std::size_t>(at(rule_expression).a)].body;
}

std::vector<Expr> Expressions::members(Expr e) const {
  const auto all = list(at(e));
  return {all.begin(), all.end()};
}

double Expressions::filled() const {
  const auto share = [](std::size_t used, std::size_t most) {
    return static_cast<double>(used) / static_cast<double>(most);
  };
  return std::max({share(nodes_.size(), most_expressions), share(sets_.size(), most_expressions),
                   share(members_.size(), most_members)});
}

std::size_t Expressions::memory() const {
  return nodes_.capacity() * sizeof(Node) + places_.capacity() * 4 + members_.capacity() * 4 +
         sets_.capacity() * sizeof(ByteSet) + edge_lists_.capacity() * sizeof(EdgeList) +
         edge_pool_.capacity() * sizeof(Edge) + rows_.capacity() * sizeof(void*) +
         kept_rows_ * sizeof(Row);
}

}  // namespace coppice::constraints
