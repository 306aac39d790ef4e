#include "constraints/masks.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "constraints/code_points.h"

namespace coppice::constraints {
namespace {

using ExpressionKind = Expressions::Kind;
using Bits = std::vector<std::uint32_t>;

// Beyond as many states nothing is called a prefix code: it is no character of a string.
constexpr std::size_t most_code_states = 64;

// Nodes of a subtree, and how many walks of such are remembered (16 KB each of a usual vocabulary).
constexpr std::uint32_t large_subtree = 4000;
constexpr std::size_t most_subtrees = 256;

void set_bit(Bits& bits, TokenId token) {
  const auto t = static_cast<std::uint32_t>(token);
  bits[t / 32] |= 1u << (t % 32);
}

void clear_bit(Bits& bits, TokenId token) {
  const auto t = static_cast<std::uint32_t>(token);
  bits[t / 32] &= ~(1u << (t % 32));
}

void add_bits(Bits& to, std::span<const std::uint32_t> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
}

}  // namespace

std::size_t Masks::Profile::bytes() const {
  return sizeof(Profile) + 4 * (all.capacity() + inside.capacity() + ends.capacity()) +
         sizeof(Exit) * exits.capacity();
}

std::shared_ptr<const Mask> Masks::make(Expr state) {
  if (profile_bytes_ > mask_cache) {
    profiles_.clear();
    profile_bytes_ = 0;
  }
  rows_.resize(vocabulary_.deepest() + 2);
  if (open_.size() > most_alternatives) open_.clear();
  if (subtrees_.size() > most_subtrees) subtrees_.clear();
  auto mask = std::make_shared<Mask>();
  mask->words.assign(vocabulary_.words(), 0);
  std::vector<Expr> narrow;
  add(state, mask->words, narrow);
  if (!narrow.empty()) walk(0, expressions_.either(std::move(narrow)), mask->words);
  if (expressions_.nullable(state)) {
    for (const TokenId end : vocabulary_.ends()) set_bit(mask->words, end);
  }
  for (std::size_t i = 0; i < mask->words.size(); ++i) {
    const std::uint32_t word = mask->words[i];
    if (word == 0) continue;
    mask->allowed += std::popcount(word);
    mask->only = static_cast<TokenId>(32 * i) + std::countr_zero(word);
  }
  if (mask->allowed != 1) mask->only = -1;
  if (mask->allowed == 0) {
    throw_failure(
        expressions_.nullable(state)
            ? "the constraint's text has ended, and the vocabulary has no end token; name "
              "one"
            : "the vocabulary has no token for what the constraint asks for next; relax "
              "the constraint");
  }
  return mask;
}

// Splits a state into alternatives: those with a profile are added, the others are walked at once.
void Masks::add(Expr state, Bits& bits, std::vector<Expr>& narrow) {
  Expressions& x = expressions_;
  x.count(1);
  if (x.kind(state) == ExpressionKind::either) {
    for (const Expr member : x.members(state)) add(member, bits, narrow);
    return;
  }
  Head head;
  if (find_head(state, head)) {
    add_profile(*profile(head), head, bits);
    return;
  }
  const bool is_chain = x.kind(state) == ExpressionKind::concat;
  const Expr first = is_chain ? x.first(state) : state;
  const Expr rest = is_chain ? x.rest(state) : empty;
  if (x.kind(first) == ExpressionKind::either) {
    for (const Expr member : x.members(first)) add(x.concat(member, rest), bits, narrow);
  } else if (x.kind(first) == ExpressionKind::rule) {
    add(x.concat(x.body(first), rest), bits, narrow);
  } else {
    narrow.push_back(state);
  }
}

bool Masks::find_head(Expr state, Head& head) {
  Expressions& x = expressions_;
  const auto split = [&](Expr chain) {
    const bool more = x.kind(chain) == ExpressionKind::concat;
    return std::pair(more ? x.first(chain) : chain, more ? x.rest(chain) : empty);
  };
  Expr begun = empty;
  auto [first, rest] = split(state);
  if (x.kind(first) != ExpressionKind::repeat) {
    // A repetition that has begun, such as an escape; what is spelt out is walked as fast.
    const bool is_literal = x.kind(first) == ExpressionKind::bytes && x.set_of(first).count() < 3;
    if (is_literal || rest == empty) return false;
    begun = first;
    std::tie(first, rest) = split(rest);
    if (x.kind(first) != ExpressionKind::repeat || !is_prefix_code(begun)) return false;
  }
  head.once = x.first(first);
  if (!is_prefix_code(head.once)) return false;
  // Then a byte tells whether another repetition begins or the rest does.
  if (!(begins(head.once) & begins(rest)).empty()) return false;
  head.least = x.least(first);
  head.most = x.most(first);
  head.rest = rest;
  head.loop = x.repeat(head.once, 0, no_limit);
  head.key = x.concat(begun, head.loop);
  return true;
}

bool Masks::is_prefix_code(Expr e) {
  if (!expressions_.regular(e) || expressions_.nullable(e)) return false;
  if (const auto known = prefix_codes_.find(e); known != prefix_codes_.end()) return known->second;
  std::vector<Expr> met = {e};
  bool is_code = true;
  for (std::size_t i = 0; i < met.size() && is_code; ++i) {
    for (const Expressions::Edge& edge : expressions_.edges(met[i])) {
      if (edge.to == empty || std::ranges::find(met, edge.to) != met.end()) continue;
      met.push_back(edge.to);
      if (expressions_.nullable(edge.to) || met.size() > most_code_states) is_code = false;
    }
  }
  if (prefix_codes_.size() > most_alternatives) prefix_codes_.clear();
  prefix_codes_[e] = is_code;
  return is_code;
}

ByteSet Masks::begins(Expr e) {
  ByteSet set;
  for (const auto& edge : expressions_.edges(e)) set = set | expressions_.set(edge.set);
  return set;
}

bool Masks::takes_plain(Expr once) {
  const auto [known, is_new] = plain_loops_.try_emplace(once, false);
  if (is_new) {
    CodePoints plain(0x20, CodePoints::last);
    plain = plain.without({'"', '"'}).without({'\\', '\\'});
    Expressions& x = expressions_;
    known->second = x.both({utf8(x, plain), x.complement(once)}) == nothing;
  }
  return known->second;
}

bool Masks::is_open(Expr state) {
  const auto [known, is_new] = open_.try_emplace(state, false);
  Head head;
  if (is_new && find_head(state, head) && head.key == head.loop) {
    const auto longest = static_cast<std::int32_t>(vocabulary_.plain_ends().size());
    const bool has_room = head.most == no_limit || head.most >= longest;
    known->second = has_room && takes_plain(head.once);
  }
  return known->second;
}

std::shared_ptr<const Masks::Profile> Masks::profile(const Head& head) {
  if (const auto known = profiles_.find(head.key); known != profiles_.end()) return known->second;
  const auto nodes = vocabulary_.nodes();
  const auto tokens = vocabulary_.tokens();
  const ByteSet begin = begins(head.once);
  auto found = std::make_shared<Profile>();
  found->all.assign(vocabulary_.words(), 0);
  found->has_plain = head.key == head.loop && takes_plain(head.once);
  std::vector<TokenId> inside;
  std::vector<std::uint16_t> uses;
  std::array<std::vector<Exit>, 256> exits;
  // By depth: the row of the state behind the node, whether another repetition may begin there, and
  // how many have.
  struct Step {
    const Expressions::Row* row = nullptr;
    bool is_between = false;
    std::uint16_t used = 0;
  };
  std::vector<Step> steps(vocabulary_.deepest() + 2);
  steps[0] = {&expressions_.row(head.key), head.key == head.loop};
  const auto end = static_cast<std::uint32_t>(nodes.size() - 1);
  std::int64_t visited = 0;
  for (std::uint32_t i = 1; i < end; ++visited) {
    const auto& node = nodes[i];
    if (found->has_plain && node.is_plain) {
      i = node.end;
      continue;
    }
    const Step before = steps[node.depth - 1u];
    if (before.is_between && !begin.has(node.byte)) {
      exits[node.byte].push_back({i, before.used});
      i = node.end;
      continue;
    }
    const Expr state = (*before.row)[node.byte];
    if (state == nothing) {
      i = node.end;
      continue;
    }
    // A token has at most 4096 bytes, so that a repetition of each fits.
    const auto used = static_cast<std::uint16_t>(before.used + (before.is_between ? 1 : 0));
    for (std::uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
      if (found->has_plain && vocabulary_.is_plain(tokens[t])) continue;
      set_bit(found->all, tokens[t]);
      inside.push_back(tokens[t]);
      uses.push_back(used);
    }
    if (node.end > i + 1) steps[node.depth] = {&expressions_.row(state), state == head.loop, used};
    ++i;
  }
  expressions_.count(visited / 4);

  for (std::size_t byte = 0; byte < 256; ++byte) {
    found->exits_of[byte] = static_cast<std::uint32_t>(found->exits.size());
    found->exits.insert(found->exits.end(), exits[byte].begin(), exits[byte].end());
  }
  found->exits_of[256] = static_cast<std::uint32_t>(found->exits.size());
  // Sorts tokens by use.
  found->ends.assign(uses.empty() ? 1 : *std::ranges::max_element(uses) + 1u, 0);
  for (const std::uint16_t use : uses) ++found->ends[use];
  std::uint32_t before = 0;
  for (std::uint32_t& place : found->ends) before += std::exchange(place, before);
  found->inside.resize(inside.size());
  for (std::size_t i = 0; i < inside.size(); ++i) {
    found->inside[found->ends[uses[i]]++] = inside[i];
  }
  profile_bytes_ += found->bytes();
  profiles_[head.key] = found;
  return found;
}

void Masks::add_up_to(std::int32_t most, std::span<const TokenId> tokens,
                      std::span<const std::uint32_t> ends, std::span<const std::uint32_t> all,
                      Bits& bits) {
  if (most == no_limit || static_cast<std::size_t>(most) >= ends.size()) {
    add_bits(bits, all);
    return;
  }
  const std::size_t fit = ends[static_cast<std::size_t>(most)];
  expressions_.count(static_cast<std::int64_t>(std::min(fit, tokens.size() - fit) / 16));
  if (fit < tokens.size() / 2) {
    for (const TokenId token : tokens.first(fit)) set_bit(bits, token);
    return;
  }
  Bits some(all.begin(), all.end());
  for (const TokenId token : tokens.subspan(fit)) clear_bit(some, token);
  add_bits(bits, some);
}

void Masks::add_profile(const Profile& profile, const Head& head, Bits& bits) {
  add_up_to(head.most, profile.inside, profile.ends, profile.all, bits);
  if (profile.has_plain) {
    add_up_to(head.most, vocabulary_.plain_tokens(), vocabulary_.plain_ends(),
              vocabulary_.plain_bits(), bits);
  }
  const auto nodes = vocabulary_.nodes();
  for (const auto& edge : expressions_.edges(head.rest)) {
    expressions_.set(edge.set).each([&](int byte) {
      const auto b = static_cast<std::size_t>(byte);
      for (std::uint32_t i = profile.exits_of[b]; i < profile.exits_of[b + 1]; ++i) {
        const Exit exit = profile.exits[i];
        if (exit.used < head.least || (head.most != no_limit && exit.used > head.most)) continue;
        for (auto t = nodes[exit.node].first_token; t < nodes[exit.node + 1].first_token; ++t) {
          set_bit(bits, vocabulary_.tokens()[t]);
        }
        if (nodes[exit.node].end > exit.node + 1) walk_large(exit.node, edge.to, bits);
      }
    });
  }
}

void Masks::walk_large(std::uint32_t root, Expr state, Bits& bits) {
  if (vocabulary_.nodes()[root].end - root < large_subtree) {
    walk(root, state, bits);
    return;
  }
  const std::uint64_t key = std::uint64_t{root} << 32 | static_cast<std::uint32_t>(state);
  const auto [place, is_new] = subtrees_.try_emplace(key);
  Bits& known = place->second;  // stays where it is, whatever the walk adds
  if (is_new) {
    try {
      known.assign(bits.size(), 0);
      walk(root, state, known);
    } catch (...) {  // half a walk is none
      subtrees_.erase(key);
      throw;
    }
  }
  add_bits(bits, known);
}

void Masks::walk(std::uint32_t root, Expr state, Bits& bits) {
  if (state == empty) return;
  const auto nodes = vocabulary_.nodes();
  const auto tokens = vocabulary_.tokens();
  std::int64_t visited = 0;
  Expr last = nothing;  // a state that was looked at, and whether it is open
  bool is_last_open = false;
  rows_[nodes[root].depth] = &expressions_.row(state);
  for (std::uint32_t i = root + 1, end = nodes[root].end; i < end; ++visited) {
    const auto& node = nodes[i];
    const Expr after = (*rows_[node.depth - 1u])[node.byte];
    if (after == nothing) {
      i = node.end;
      continue;
    }
    if (after != last && node.is_plain) {
      last = after;
      is_last_open = is_open(after);
    }
    // Below, tokens go on with whole characters, all of which may follow.
    const bool takes_all = node.is_plain && after == last && is_last_open &&
                           (node.end == i + 1 || (nodes[i + 1].byte & 0xc0) != 0x80);
    const std::uint32_t below = takes_all ? node.end : i + 1;
    for (std::uint32_t t = node.first_token; t < nodes[below].first_token; ++t) {
      set_bit(bits, tokens[t]);
    }
    if (takes_all) {
      i = below;
      continue;
    }
    if (node.end > i + 1) rows_[node.depth] = &expressions_.row(after);
    ++i;
  }
  expressions_.count(visited / 4);
}

}  // namespace coppice::constraints
