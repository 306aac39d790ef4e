#include <algorithm>

#include "drafting/mass_left.h"
#include "study/replay/replay.h"

namespace coppice::study {
namespace {

struct Span {
  std::size_t first, count;
};

Span entries_of(const RecordedPosition& position, std::int32_t node) {
  const std::size_t first = position.first_entry[node];
  return {first, static_cast<std::size_t>(position.entries(node))};
}

std::span<float> write(std::span<float> out, const std::vector<float>& probs, Span entries) {
  std::fill(out.begin(), out.end(), 0.0f);
  std::copy_n(probs.begin() + static_cast<std::ptrdiff_t>(entries.first), entries.count,
              out.begin());
  return out.subspan(entries.count);
}

float positive(float difference) { return std::max(0.0f, difference); }

// D of a recorded node over the local vocabulary; the same for T.

void write_local_draft(const RecordedPosition& position, std::int32_t node, std::span<float> out) {
  const std::span<float> others = write(out, position.draft, entries_of(position, node));
  others[0] = position.overlap[node];
  others[1] = positive(position.draft_rest[node] - position.overlap[node]);
}

void write_local_target(const RecordedPosition& position, std::int32_t node, std::span<float> out) {
  const std::span<float> others = write(out, position.target, entries_of(position, node));
  others[0] = position.overlap[node];
  others[2] = positive(position.target_rest[node] - position.overlap[node]);
}

}  // namespace

void RecordedDraft::begin(const RecordedText& text, std::int32_t position, AcceptanceRule draw,
                          bool stand_ins, bool drafts) {
  text_ = &text;
  start_ = position;
  draw_ = draw;
  stand_ins_ = stand_ins;
  drafts_ = drafts;
  distributions_.reset();
  nodes_.clear();
  excluded_.clear();
  shortfalls_.clear();
  lacks_nodes_ = lacks_entries_ = false;
  passes_ = 0;
}

RecordedPlace RecordedDraft::place_below(RecordedPlace parent, TokenId local_token) const {
  if (!parent.recorded()) return {};
  const RecordedPosition& p = position(parent);
  const Span entries = entries_of(p, parent.node);
  if (local_token < 0 || std::cmp_greater_equal(local_token, entries.count)) return {};
  const std::uint16_t node = p.leads_to[entries.first + static_cast<std::size_t>(local_token)];
  if (node == ChildTable::no_node) return {};
  if (node != 0) return {parent.position, node};
  const std::int32_t next = parent.position + 1;
  return next < text_->length() ? RecordedPlace{next, 0} : RecordedPlace{};
}

RecordedPlace RecordedDraft::place_in(const TokenTree& candidates, std::int32_t node) const {
  if (evaluated(node)) return place(node);
  if (node == 0) return root();
  return place_below(place_in(candidates, candidates.parent[node]), candidates.token[node]);
}

TokenId RecordedDraft::token_of(RecordedPlace parent, TokenId local_token) const {
  if (!parent.recorded() || local_token < 0) return -1;
  const RecordedPosition& p = position(parent);
  return p.token[p.first_entry[parent.node] + static_cast<std::size_t>(local_token)];
}

TokenId RecordedDraft::local_token(RecordedPlace parent, TokenId token) const {
  if (!parent.recorded()) return -1;
  const RecordedPosition& p = position(parent);
  const Span entries = entries_of(p, parent.node);
  const auto all = std::span(p.token).subspan(entries.first, entries.count);
  const auto found = std::ranges::lower_bound(all, token);
  return found == all.end() || *found != token ? -1 : static_cast<TokenId>(found - all.begin());
}

void RecordedDraft::note_shortfall(std::int32_t node) {
  if (std::ranges::find(shortfalls_, node) == shortfalls_.end()) shortfalls_.push_back(node);
  lacks_nodes_ = true;
}

void RecordedDraft::evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) {
  if (drafts_) ++passes_;
  nodes_.resize(static_cast<std::size_t>(candidates.nodes()));
  for (const std::int32_t node : nodes) {
    Node& at = nodes_[node];
    at.place = place_in(candidates, node);
    at.evaluated = true;
    if (!drafts_) continue;
    if (at.place.recorded()) {
      at.children = children_of(position(at.place)).of(at.place.node);
      // Needed soon, and seldom in a cache.
      __builtin_prefetch(at.children.data());
    } else {
      shortfalls_.push_back(node);
      lacks_nodes_ |= !is_stand_in(candidates, node);
    }
  }
}

std::optional<DrawnChild> RecordedDraft::child(const TokenTree& /*candidates*/, std::int32_t node,
                                               std::int32_t rank) {
  Node& at = nodes_[node];
  while (at.drawn < at.children.size()) {
    const ChildTable::Child& next = at.children[at.drawn++];
    if (!is_excluded(node, next.entry)) return DrawnChild{next.entry, next.draft};
  }
  if (at.place.recorded()) {
    if (!has_others(node)) return std::nullopt;
    shortfalls_.push_back(node);
    lacks_entries_ = true;
  }
  if (!stand_ins_) return std::nullopt;
  // Has so small a D that no policy finds its node's mass or its path's probability used up.
  return DrawnChild{stand_in, rank == 0 ? 0.9f : 1e-9f};
}

// Whether a node has children beside the recorded ones.
bool RecordedDraft::has_others(std::int32_t node) const {
  const RecordedPlace at = place(node);
  const RecordedPosition& p = position(at);
  const Span entries = entries_of(p, at.node);
  const auto& ranks = draw_ == AcceptanceRule::rejection ? p.sampled_rank : p.settled_rank;
  if (p.draft_rest[at.node] > 0.0f) return true;
  for (std::size_t e = entries.first; e < entries.first + entries.count; ++e) {
    if (ranks[e] != no_rank || is_excluded(node, static_cast<TokenId>(e - entries.first))) continue;
    if (p.draft[e] > 0.0f) return true;
  }
  return false;
}

double RecordedDraft::expected_share(std::int32_t node) {
  const Node& at = nodes_[node];
  if (draw_ != AcceptanceRule::rejection || !at.place.recorded()) return -1.0;
  const RecordedPosition& p = position(at.place);
  const Span entries = entries_of(p, at.place.node);
  MassLeft left;
  double squares = 0.0;
  for (std::size_t e = 0; e < entries.count; ++e) {
    const auto prob = static_cast<double>(p.draft[entries.first + e]);
    squares += prob * prob;
    const std::uint16_t rank = p.sampled_rank[entries.first + e];
    const bool drawn = rank != no_rank && rank < at.drawn;
    if (drawn || is_excluded(node, static_cast<TokenId>(e))) left.take(prob);
  }
  return left.expected_share(squares);
}

void RecordedDraft::write_distribution(std::int32_t node) {
  if (distributions_.has(node)) return;
  distributions_.grow_to(node + 1);
  const RecordedPlace at = place(node);
  write_local_draft(position(at), at.node, distributions_.row(node));
}

RecordedPlace RecordedTarget::place(std::int32_t node) const {
  const std::int32_t candidate = tree_->candidate[node];
  if (draft_.evaluated(candidate)) return draft_.place(candidate);
  if (node == 0) return draft_.root();
  return draft_.place_below(place(tree_->parent[node]), tree_->token[node]);
}

TokenId RecordedTarget::argmax(std::int32_t node) {
  const RecordedPlace at = place(node);
  if (!at.recorded()) return none();
  const RecordedPosition& p = draft_.position(at);
  const Span entries = entries_of(p, at.node);
  const auto first = p.token.begin() + static_cast<std::ptrdiff_t>(entries.first);
  const auto found =
      std::find(first, first + static_cast<std::ptrdiff_t>(entries.count), p.target_token[at.node]);
  return found - first == static_cast<std::ptrdiff_t>(entries.count)
             ? none()
             : static_cast<TokenId>(found - first);
}

std::span<const float> RecordedTarget::distribution(std::int32_t node) {
  const RecordedPlace at = place(node);
  if (!at.recorded()) {
    std::fill(probs_.begin(), probs_.end(), 0.0f);
    probs_[none()] = 1.0f;
    return probs_;
  }
  const std::int32_t candidate = tree_->candidate[node];
  if (draft_.evaluated(candidate)) draft_.write_distribution(candidate);
  write_local_target(draft_.position(at), at.node, probs_);
  return probs_;
}

void RecordedLookup::start(const RecordedText& text) {
  lookup_ = LookupProposer();
  tokens_ = text.prompt_ids;
  tokens_.insert(tokens_.end(), text.tokens.begin(), text.tokens.end());
  prompt_ = static_cast<std::int32_t>(text.prompt_ids.size());
}

void RecordedLookup::follow(std::int32_t position) {
  length_ = prompt_ + position;
  lookup_.follow(std::span(tokens_).first(static_cast<std::size_t>(length_)));
}

void RecordedLookup::begin() {
  lookup_.begin();
  named_.reset(tokens_[static_cast<std::size_t>(length_) - 1]);
}

void RecordedLookup::name_nodes(const TokenTree& candidates) {
  for (std::int32_t node = named_.nodes(); node < candidates.nodes(); ++node) {
    const std::int32_t parent = candidates.parent[node];
    const TokenId token =
        draft_.token_of(draft_.place_in(candidates, parent), candidates.token[node]);
    named_.add(parent, token, candidates.rank[node], 1.0f, 1.0);
  }
}

std::optional<Proposal> RecordedLookup::next(const TokenTree& candidates, std::int32_t node,
                                             TokenId but) {
  name_nodes(candidates);
  const RecordedPlace place = draft_.place_in(candidates, node);
  auto found = lookup_.next(named_, node, draft_.token_of(place, but));
  if (!found) return found;
  found->token = draft_.local_token(place, found->token);
  // Before a node is evaluated, its first child's value is asked for and not the child.
  if (found->token >= 0 || !draft_.evaluated(node)) return found;
  draft_.note_shortfall(node);
  return std::nullopt;
}

void RecordedLookup::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  TokenTree named = tree;
  for (std::int32_t node = 1; node < named.nodes(); ++node) {
    named.token[node] = named_.token[tree.candidate[node]];
  }
  lookup_.record(named, path);
}

}  // namespace coppice::study
