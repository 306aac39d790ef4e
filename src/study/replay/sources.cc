#include <algorithm>

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
                          bool stand_ins) {
  text_ = &text;
  start_ = position;
  draw_ = draw;
  stand_ins_ = stand_ins;
  distributions_.reset();
  nodes_.clear();
  shortfalls_.clear();
  lacks_nodes_ = lacks_entries_ = false;
  passes_ = 0;
}

RecordedPlace RecordedDraft::led_to(RecordedPlace parent, const ChildTable::Child& child) const {
  if (child.node == ChildTable::no_node) return {};
  if (child.node != 0) return {parent.position, child.node};
  const std::int32_t next = parent.position + 1;
  return next < text_->length() ? RecordedPlace{next, 0} : RecordedPlace{};
}

RecordedPlace RecordedDraft::place_below(RecordedPlace parent, TokenId local_token) const {
  if (!parent.recorded()) return {};
  const auto children = children_of(position(parent)).of(parent.node);
  const auto found =
      std::ranges::find_if(children, [&](const auto& child) { return child.entry == local_token; });
  return found == children.end() ? RecordedPlace{} : led_to(parent, *found);
}

void RecordedDraft::evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) {
  ++passes_;
  nodes_.resize(static_cast<std::size_t>(candidates.nodes()));
  for (const std::int32_t node : nodes) {
    Node& at = nodes_[node];
    at.evaluated = true;
    if (node == 0) {
      at.place = root();
    } else {
      const Node& parent = nodes_[candidates.parent[node]];
      const auto rank = static_cast<std::size_t>(candidates.rank[node]);
      if (std::cmp_less(rank, parent.children.size()))
        at.place = led_to(parent.place, parent.children[rank]);
    }
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
  const Node& at = nodes_[node];
  if (std::cmp_less(rank, at.children.size()))
    return DrawnChild{at.children[rank].entry, at.children[rank].draft};
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
    if (ranks[e] == no_rank && p.draft[e] > 0.0f) return true;
  }
  return false;
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
  // Its parent has been, or it could not have been drawn.
  const auto parent = static_cast<std::size_t>(tree_->parent[node]);
  return draft_.place_below(draft_.place(tree_->candidate[parent]), tree_->token[node]);
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

}  // namespace coppice::study
