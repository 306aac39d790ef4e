#include "study/replay_sources.h"

#include <algorithm>

namespace coppice::study {
namespace {

struct Span {
  std::size_t first, count;
};

Span entries_of(const RecordedPosition& position, std::int32_t node) {
  const std::size_t first = position.first_entry[static_cast<std::size_t>(node)];
  return {first, static_cast<std::size_t>(position.entries(node))};
}

std::span<float> write(std::span<float> out, const std::vector<float>& probs, Span entries) {
  std::fill(out.begin(), out.end(), 0.0f);
  std::copy_n(probs.begin() + static_cast<std::ptrdiff_t>(entries.first), entries.count,
              out.begin());
  return out.subspan(entries.count);
}

float positive(float difference) { return std::max(0.0f, difference); }

}  // namespace

void write_local_draft(const RecordedPosition& position, std::int32_t node, std::span<float> out) {
  const auto n = static_cast<std::size_t>(node);
  const std::span<float> others = write(out, position.draft, entries_of(position, node));
  others[0] = position.overlap[n];
  others[1] = positive(position.draft_rest[n] - position.overlap[n]);
}

void write_local_target(const RecordedPosition& position, std::int32_t node, std::span<float> out) {
  const auto n = static_cast<std::size_t>(node);
  const std::span<float> others = write(out, position.target, entries_of(position, node));
  others[0] = position.overlap[n];
  others[2] = positive(position.target_rest[n] - position.overlap[n]);
}

RecordedDraft::RecordedDraft(const Recording& recording)
    : distributions_(0, LocalVocabulary::size(recording)) {}

void RecordedDraft::begin(const RecordedText& text, std::int32_t position, ChildDraw draw) {
  text_ = &text;
  start_ = position;
  draw_ = draw;
  distributions_.reset();
  places_.clear();
  evaluated_.clear();
  shortfalls_.clear();
}

bool RecordedDraft::evaluated(std::int32_t node) const {
  const auto n = static_cast<std::size_t>(node);
  return n < evaluated_.size() && evaluated_[n] != 0;
}

RecordedPlace RecordedDraft::place_below(RecordedPlace parent, TokenId local_token) const {
  if (!parent.recorded()) return {};
  const RecordedPosition& p = position(parent);
  const Span entries = entries_of(p, parent.node);
  const auto entry = static_cast<std::size_t>(local_token);
  if (entry >= entries.count) return {};
  const auto next = static_cast<std::size_t>(parent.position) + 1;
  if (parent.node == 0 && p.token[entries.first + entry] == text_->tokens[next - 1]) {
    if (next >= text_->positions.size()) return {};
    return {parent.position + 1, 0};
  }
  const std::int32_t node = p.child[entries.first + entry];
  return node < 0 ? RecordedPlace{} : RecordedPlace{parent.position, node};
}

void RecordedDraft::evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) {
  ++passes_;
  const auto size = static_cast<std::size_t>(arena.nodes());
  places_.resize(size);
  evaluated_.resize(size, 0);
  for (const std::int32_t node : nodes) {
    const auto n = static_cast<std::size_t>(node);
    RecordedPlace& at = places_[n];
    at = node == 0 ? root() : place_below(place(arena.parent[n]), arena.token[n]);
    evaluated_[n] = 1;
    if (!at.recorded()) {
      shortfalls_.push_back({node, arena.path_prob[n]});
    } else if (draw_ == ChildDraw::sampled) {
      distributions_.grow_to(node + 1);
      write_local_draft(position(at), at.node, distributions_.row(node));
    }
  }
}

std::optional<DrawnChild> RecordedDraft::child(const TokenTree& arena, std::int32_t node,
                                               std::int32_t rank) {
  const RecordedPlace at = place(node);
  if (!at.recorded()) return std::nullopt;
  const auto drawn = entry_of_rank(at, rank);
  if (drawn) return drawn;
  // Its recorded children are used up. Are there others?
  const RecordedPosition& p = position(at);
  const Span entries = entries_of(p, at.node);
  double mass_of_others = static_cast<double>(p.draft_rest[static_cast<std::size_t>(at.node)]);
  double used = 0.0;
  const std::vector<std::uint16_t>& ranks = ranks_of(p);
  for (std::size_t e = entries.first; e < entries.first + entries.count; ++e) {
    (ranks[e] == no_rank ? mass_of_others : used) += static_cast<double>(p.draft[e]);
  }
  if (mass_of_others > 0.0) {
    shortfalls_.push_back(
        {node, arena.path_prob[static_cast<std::size_t>(node)] * std::max(0.0, 1.0 - used)});
  }
  return std::nullopt;
}

const std::vector<std::uint16_t>& RecordedDraft::ranks_of(const RecordedPosition& position) const {
  return draw_ == ChildDraw::sampled ? position.sampled_rank : position.settled_rank;
}

std::optional<DrawnChild> RecordedDraft::entry_of_rank(RecordedPlace place,
                                                       std::int32_t rank) const {
  const RecordedPosition& p = position(place);
  const Span entries = entries_of(p, place.node);
  const auto first = ranks_of(p).begin() + static_cast<std::ptrdiff_t>(entries.first);
  const auto last = first + static_cast<std::ptrdiff_t>(entries.count);
  const auto found = std::find(first, last, static_cast<std::uint16_t>(rank));
  if (found == last) return std::nullopt;
  const auto entry = static_cast<std::size_t>(found - first);
  return DrawnChild{static_cast<TokenId>(entry), p.draft[entries.first + entry]};
}

RecordedTarget::RecordedTarget(const Recording& recording, const RecordedDraft& draft)
    : draft_(draft), probs_(static_cast<std::size_t>(LocalVocabulary::size(recording))) {}

void RecordedTarget::begin(const TokenTree& tree, bool settled) {
  settled_ = settled;
  places_.clear();
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    const std::int32_t source = tree.source[n];
    if (node == 0) {
      places_.push_back(draft_.root());
    } else if (draft_.evaluated(source)) {
      places_.push_back(draft_.place(source));
    } else {
      places_.push_back(
          draft_.place_below(places_[static_cast<std::size_t>(tree.parent[n])], tree.token[n]));
    }
  }
}

TokenId RecordedTarget::argmax(std::int32_t node) {
  const RecordedPlace at = place(node);
  if (!at.recorded()) return none();
  const RecordedPosition& p = draft_.position(at);
  const auto n = static_cast<std::size_t>(at.node);
  const Span entries = entries_of(p, at.node);
  const auto first = p.token.begin() + static_cast<std::ptrdiff_t>(entries.first);
  const auto found =
      std::find(first, first + static_cast<std::ptrdiff_t>(entries.count), p.target_token[n]);
  return found - first == static_cast<std::ptrdiff_t>(entries.count)
             ? none()
             : static_cast<TokenId>(found - first);
}

std::span<const float> RecordedTarget::distribution(std::int32_t node) {
  const RecordedPlace at = place(node);
  if (settled_ || !at.recorded()) {
    std::fill(probs_.begin(), probs_.end(), 0.0f);
    probs_[static_cast<std::size_t>(argmax(node))] = 1.0f;
  } else {
    write_local_target(draft_.position(at), at.node, probs_);
  }
  return probs_;
}

}  // namespace coppice::study
