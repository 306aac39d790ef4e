#include "drafting/suffix_index.h"

#include <algorithm>

namespace coppice {
namespace {

/// States, of strings that end where the text ends, that learn what follows; the
/// longest first. Repetitive texts have more.
constexpr int most_noted = 24;

}  // namespace

SuffixIndex::SuffixIndex(std::int32_t most) : most_(std::max(most, 2)) { clear(); }

void SuffixIndex::clear() {
  text_.clear();
  states_.assign(1, {});
  edges_.clear();
  next_.clear();
  last_ = 0;
}

void SuffixIndex::append(TokenId token) {
  if (size() == most_) {
    const std::vector<TokenId> kept(text_.begin() + most_ / 2, text_.end());
    clear();
    for (const TokenId of : kept) append(of);
  }
  if (token < 0) {
    text_.push_back(token);
    last_ = 0;
    return;
  }
  // The root, which every token follows, would tell nothing.
  int noted = 0;
  for (std::int32_t state = last_; state > 0 && noted < most_noted; ++noted) {
    State& at = states_[static_cast<std::size_t>(state)];
    note(at, token);
    state = at.link;
  }
  text_.push_back(token);
  extend(token);
}

void SuffixIndex::note(State& state, TokenId token) const {
  auto& all = state.follower;
  auto at = std::find_if(all.begin(), all.end(), [&](const Follower& follower) {
    return follower.count == 0 || follower.token == token;
  });
  if (at == all.end()) *--at = {};
  *at = {token, at->count + 1, size()};
  for (; at != all.begin() && (at - 1)->count <= at->count; --at) std::iter_swap(at - 1, at);
}

std::int32_t SuffixIndex::go(std::int32_t state, TokenId token) const {
  const auto found = next_.find(key(state, token));
  return found == next_.end() ? -1 : found->second;
}

void SuffixIndex::connect(std::int32_t state, TokenId token, std::int32_t to) {
  if (!next_.insert_or_assign(key(state, token), to).second) return;
  std::int32_t& edge = states_[static_cast<std::size_t>(state)].edge;
  edges_.push_back({token, edge});
  edge = static_cast<std::int32_t>(edges_.size()) - 1;
}

// The strings of `state` that are one token longer than `from`'s, and shorter ones, become a state
// of their own: they occur at a place more.
std::int32_t SuffixIndex::split(std::int32_t state, std::int32_t from, TokenId token) {
  const auto copy = static_cast<std::int32_t>(states_.size());
  State shorter = states_[static_cast<std::size_t>(state)];
  shorter.length = states_[static_cast<std::size_t>(from)].length + 1;
  shorter.edge = -1;
  states_.push_back(shorter);
  for (std::int32_t edge = states_[static_cast<std::size_t>(state)].edge; edge >= 0;) {
    const Edge of = edges_[static_cast<std::size_t>(edge)];
    connect(copy, of.token, go(state, of.token));
    edge = of.before;
  }
  for (; from >= 0 && go(from, token) == state;
       from = states_[static_cast<std::size_t>(from)].link) {
    connect(from, token, copy);
  }
  states_[static_cast<std::size_t>(state)].link = copy;
  return copy;
}

void SuffixIndex::extend(TokenId token) {
  const std::int32_t before = last_;
  const std::int32_t known = go(before, token);
  if (known >= 0) {  // behind a separator: the string is in the text already
    const bool whole = states_[static_cast<std::size_t>(known)].length ==
                       states_[static_cast<std::size_t>(before)].length + 1;
    last_ = whole ? known : split(known, before, token);
    return;
  }
  last_ = static_cast<std::int32_t>(states_.size());
  State added;
  added.length = states_[static_cast<std::size_t>(before)].length + 1;
  states_.push_back(added);
  std::int32_t from = before;
  for (; from >= 0 && go(from, token) < 0; from = states_[static_cast<std::size_t>(from)].link) {
    connect(from, token, last_);
  }
  std::int32_t link = 0;
  if (from >= 0) {
    const std::int32_t to = go(from, token);
    const bool whole = states_[static_cast<std::size_t>(to)].length ==
                       states_[static_cast<std::size_t>(from)].length + 1;
    link = whole ? to : split(to, from, token);
  }
  states_[static_cast<std::size_t>(last_)].link = link;
}

SuffixIndex::Match SuffixIndex::end() const {
  const State& whole = states_[static_cast<std::size_t>(last_)];
  if (whole.link < 0) return {};
  return {whole.link, states_[static_cast<std::size_t>(whole.link)].length};
}

SuffixIndex::Match SuffixIndex::then(Match match, TokenId token) const {
  for (;;) {
    const std::int32_t to = go(match.state, token);
    if (to >= 0) return {to, match.length + 1};
    const std::int32_t link = states_[static_cast<std::size_t>(match.state)].link;
    if (link < 0) return {};
    match = {link, states_[static_cast<std::size_t>(link)].length};
  }
}

std::span<const SuffixIndex::Follower> SuffixIndex::after(Match match) const {
  const auto& all = states_[static_cast<std::size_t>(match.state)].follower;
  const auto none = [](const Follower& follower) { return follower.count == 0; };
  return {all.data(),
          static_cast<std::size_t>(std::find_if(all.begin(), all.end(), none) - all.begin())};
}

}  // namespace coppice
