#include "drafting/draft_runner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"

namespace coppice {
namespace {

/// Most tokens that a step's first pass catches up with.
constexpr std::int32_t longest_lag = 64;

}  // namespace

DraftRunner::DraftRunner(Model& model, KvPool& pool, std::unique_ptr<DraftSampler> sampler)
    : model_(model),
      pool_(pool),
      prefix_(model, pool),
      sampler_(std::move(sampler)),
      slots_(&pool) {}

DraftRunner::Step DraftRunner::begin(SequenceState& state, const StepKey& key,
                                     const Setting& setting) {
  state_ = &state;
  setting_ = setting;
  sampler_->begin(state, key, setting.params, setting.draw, setting.sharpness);
  passes_ = 0;
  seconds_ = {};
  return Step(this);
}

void DraftRunner::end() {
  slots_.cut(0);
  slot_index_.clear();
  evaluated_.clear();
}

std::int32_t DraftRunner::room(const SequenceState& state) const {
  const std::int32_t missing = std::min(state.length() - state.draft_slots.size(), longest_lag);
  return std::min(pool_.free_slots() - missing, model_.options().max_rows - 1);
}

bool DraftRunner::prefill(SequenceState& state, const SamplingParams& params, double& fit) {
  passes_ = 0;
  const std::int32_t end = state.length() - 1;
  const std::int32_t begin = state.draft_slots.size();
  if (begin >= end) return true;
  const std::int32_t chunk = model_.options().max_rows;
  // The last tokens are scored, those that the last chunk holds.
  constexpr std::int32_t most_scored = 16;
  std::int32_t rows = std::min(most_scored, (end - begin - 1) % chunk + 1);
  const std::span<const TokenId> next =
      std::span<const TokenId>(state.tokens)
          .subspan(static_cast<std::size_t>(end - rows + 1), static_cast<std::size_t>(rows));
  PassTail* tail = sampler_->prepare_scores(next, params);
  const float* logits = nullptr;
  if (!prefix_.extend(state.tokens, end, state.draft_slots, rows, &logits, tail)) return false;
  passes_ = (end - begin + chunk - 1) / chunk;
  fit = sampler_->take_scores(next, params, logits);
  return true;
}

// After a long stretch of plain decoding only its end is caught up with: a trial of speculation
// must stay cheap, and the draft guesses well enough from the recent past. Any draft
// distribution is exact, so nothing else depends on the gap.
void DraftRunner::skip_long_lag() {
  constexpr std::int32_t caught_up = 32;
  if (state_->length() - state_->draft_slots.size() > longest_lag) {
    state_->draft_slots.skip_to(state_->length() - caught_up);
  }
}

void DraftRunner::evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) {
  slot_index_.resize(static_cast<std::size_t>(arena.nodes()), -1);
  ++passes_;
  if (nodes.size() == 1 && nodes[0] == 0) {
    // The root's pass also catches up with what the draft has not seen: accepted leaves it
    // never evaluated, the bonus token, or a whole prompt.
    skip_long_lag();
    const float* logits = nullptr;
    PassTail* tail = sampler_->prepare(arena, nodes);
    {
      const Stopwatch timing(seconds_.draft);
      std::int32_t rows = 1;
      if (!prefix_.extend(state_->tokens, state_->length(), state_->draft_slots, rows, &logits,
                          tail)) {
        throw_failure("draft: no KV slot is left for the text so far; raise kv_tokens");
      }
      sampler_->wait();
    }
    seconds_.first_draft = seconds_.draft;
    take(arena, nodes, logits);
    return;
  }

  order_rows(arena, nodes);
  const std::int32_t before = slots_.size(), count = static_cast<std::int32_t>(nodes.size());
  state_->draft_slots.make_room(before + count);  // so that keeping cannot fail
  if (!slots_.take(count)) {
    throw_failure(cat("draft: ", nodes.size(), " KV slots wanted for tree nodes, ",
                      pool_.free_slots(), " are free; raise kv_tokens"));
  }
  for (std::int32_t i = 0; i < count; ++i) {
    slot_index_[static_cast<std::size_t>(rows_[static_cast<std::size_t>(i)])] = before + i;
  }
  evaluated_.insert(evaluated_.end(), nodes.begin(), nodes.end());

  const std::int32_t prefix = state_->length();
  tokens_.clear();
  positions_.clear();
  row_index_.clear();
  for (const std::int32_t id : rows_) {
    const auto node = static_cast<std::size_t>(id);
    row_index_.push_back(static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(arena.token[node]);
    positions_.push_back(prefix - 1 + arena.depth[node]);
  }
  segments_.assign(
      1, {state_->draft_slots.all().first(static_cast<std::size_t>(prefix)), 0, count, true});
  for (std::size_t row = 1; row < order_.node_of_row.size(); ++row) {
    const std::size_t past = row + static_cast<std::size_t>(order_.subtree_rows[row]);
    if (new_before_[row] == new_before_[past]) continue;  // no new row descends from it
    const auto node =
        static_cast<std::size_t>(kv_nodes_[static_cast<std::size_t>(order_.node_of_row[row])]);
    const auto index = static_cast<std::size_t>(slot_index_[node]);
    segments_.push_back({slots_.all().subspan(index, 1), new_before_[row], new_before_[past],
                         index < static_cast<std::size_t>(before)});
  }
  const ForwardBatch batch{tokens_, positions_,
                           slots_.all().subspan(static_cast<std::size_t>(before)), segments_,
                           row_index_};
  PassTail* tail = sampler_->prepare(arena, rows_);
  const float* logits = nullptr;
  {
    const Stopwatch timing(seconds_.draft);
    logits = model_.forward(batch, pool_, tail);
    sampler_->wait();
  }
  take(arena, rows_, logits);
}

// Puts everything evaluated so far and `nodes` in depth-first order: every KV token is then seen by
// one run of the new rows. The arena's other nodes, which are many, have no part in it.
void DraftRunner::order_rows(const TokenTree& arena, std::span<const std::int32_t> nodes) {
  kv_nodes_.assign(1, 0);
  kv_nodes_.insert(kv_nodes_.end(), evaluated_.begin(), evaluated_.end());
  kv_nodes_.insert(kv_nodes_.end(), nodes.begin(), nodes.end());
  if (!std::is_sorted(kv_nodes_.begin(), kv_nodes_.end())) {
    std::sort(kv_nodes_.begin(), kv_nodes_.end());
  }
  // Parents are evaluated before their children.
  place_of_node_.resize(static_cast<std::size_t>(arena.nodes()));
  kv_parent_.assign(1, -1);
  place_of_node_[0] = 0;
  for (std::size_t i = 1; i < kv_nodes_.size(); ++i) {
    const auto node = static_cast<std::size_t>(kv_nodes_[i]);
    place_of_node_[node] = static_cast<std::int32_t>(i);
    kv_parent_.push_back(place_of_node_[static_cast<std::size_t>(arena.parent[node])]);
  }
  order_.assign(kv_parent_);

  rows_.clear();
  new_before_.clear();
  for (const std::int32_t place : order_.node_of_row) {
    const std::int32_t node = kv_nodes_[static_cast<std::size_t>(place)];
    new_before_.push_back(static_cast<std::int32_t>(rows_.size()));
    if (node != 0 && slot_index_[static_cast<std::size_t>(node)] < 0) rows_.push_back(node);
  }
  new_before_.push_back(static_cast<std::int32_t>(rows_.size()));
}

void DraftRunner::take(const TokenTree& arena, std::span<const std::int32_t> nodes,
                       const float* logits) {
  const Stopwatch timing(seconds_.drawing);
  sampler_->take(arena, nodes, logits);
}

void DraftRunner::forget(std::span<const std::int32_t> nodes) {
  sampler_->forget(nodes);
  bool any = false;
  for (const std::int32_t node : nodes) {
    const auto n = static_cast<std::size_t>(node);
    if (n >= slot_index_.size() || slot_index_[n] < 0) continue;
    slots_.give_back(std::exchange(slot_index_[n], -1));
    any = true;
  }
  if (!any) return;
  std::erase_if(evaluated_,
                [&](std::int32_t node) { return slot_index_[static_cast<std::size_t>(node)] < 0; });
}

// What a device has drawn is looked up, in less time than the clock: that counts as construction.
template <typename Call>
auto DraftRunner::timed(const Call& call) {
  if (sampler_->distributions() == nullptr) return call();
  const Stopwatch timing(seconds_.drawing);
  return call();
}

std::optional<DrawnChild> DraftRunner::child(const TokenTree& arena, std::int32_t node,
                                             std::int32_t rank) {
  std::optional<DrawnChild> drawn = timed([&] { return sampler_->child(arena, node, rank); });
  if (drawn && !setting_.uniforms_judge) drawn->uniform = -1.0f;
  return drawn;
}

double DraftRunner::expected_share(std::int32_t node) {
  return timed([&] { return sampler_->expected_share(node); });
}

void DraftRunner::commit(const TokenTree& tree, std::span<const std::int32_t> path) {
  for (const std::int32_t node : path) {
    const auto source = static_cast<std::size_t>(tree.source[static_cast<std::size_t>(node)]);
    if (source >= slot_index_.size() || slot_index_[source] < 0) break;
    state_->draft_slots.keep(slots_, slot_index_[source]);
  }
}

}  // namespace coppice
