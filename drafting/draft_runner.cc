#include "drafting/draft_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"

namespace coppice {
namespace {

/// Most tokens that a step's first pass catches up with.
constexpr std::int32_t longest_lag = 64;

}  // namespace

DraftRunner::DraftRunner(Model& model, KvPool& pool, std::int64_t vocab_size, NoiseCache& noise)
    : model_(model),
      pool_(pool),
      prefix_(model, pool),
      common_vocab_(static_cast<std::size_t>(std::min(vocab_size, model.config().vocab_size))),
      drawer_(vocab_size, noise) {}

void DraftRunner::begin(SequenceState& state, const StepKey& key, const Setting& setting) {
  state_ = &state;
  setting_ = setting;
  drawer_.begin(key, setting.draw);
  slot_of_node_.clear();
  evaluated_.clear();
}

std::int32_t DraftRunner::room(const SequenceState& state) const {
  const auto missing =
      std::min(state.length() - static_cast<std::int32_t>(state.draft_slots.size()), longest_lag);
  return std::min(pool_.free_slots() - missing,
                  std::min(model_.options().max_rows, model_.max_positions()) - 1);
}

bool DraftRunner::prefill(SequenceState& state, const SamplingParams& params, double& fit) {
  const std::int32_t end = state.length() - 1;
  const auto begin = static_cast<std::int32_t>(state.draft_slots.size());
  if (begin >= end) return true;
  const Stopwatch timing(prefill_seconds_);
  std::int32_t rows = 16;
  const float* logits = nullptr;
  if (!prefix_.extend(state.tokens, end, state.draft_slots, rows, &logits)) return false;
  const std::int32_t chunk = model_.options().max_rows;
  passes_ += (end - begin + chunk - 1) / chunk;
  // The penalty concerns texts, not how well the draft knows the language.
  SamplingParams plain = params;
  plain.repetition_penalty = 1.0;
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  fit_probs_.resize(common_vocab_);
  double sum = 0.0;
  for (std::int32_t r = 0; r < rows; ++r) {
    process_logits({logits + static_cast<std::size_t>(r) * vocab, common_vocab_}, plain, nullptr,
                   scratch_, fit_probs_);
    const TokenId next = state.tokens[static_cast<std::size_t>(end - rows + 1 + r)];
    if (static_cast<std::size_t>(next) < common_vocab_) {
      sum += static_cast<double>(fit_probs_[static_cast<std::size_t>(next)]);
    }
  }
  fit = sum / rows;
  return true;
}

// After a long stretch of plain decoding only its end is caught up with: a trial of speculation
// must stay cheap, and the draft guesses well enough from the recent past. Any draft
// distribution is exact, so nothing else depends on the gap.
void DraftRunner::skip_long_lag() {
  constexpr std::size_t caught_up = 32;
  const std::size_t lag = state_->tokens.size() - state_->draft_slots.size();
  if (lag > static_cast<std::size_t>(longest_lag)) {
    state_->draft_slots.resize(state_->tokens.size() - caught_up, no_slot);
  }
}

void DraftRunner::evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) {
  slot_of_node_.resize(static_cast<std::size_t>(arena.nodes()), -1);
  ++passes_;
  if (nodes.size() == 1 && nodes[0] == 0) {
    // The root's pass also catches up with what the draft has not seen: accepted leaves it
    // never evaluated, the bonus token, or a whole prompt.
    skip_long_lag();
    const float* logits = nullptr;
    {
      const Stopwatch timing(forward_seconds_);
      std::int32_t rows = 1;
      if (!prefix_.extend(state_->tokens, state_->length(), state_->draft_slots, rows, &logits)) {
        throw_failure("draft: no KV slot is left for the text so far; raise kv_tokens");
      }
    }
    process(logits, arena, 0);
    return;
  }

  const auto count = static_cast<std::int32_t>(nodes.size());
  write_slots_.resize(nodes.size());
  if (!pool_.take(write_slots_)) {
    throw_failure(cat("draft: ", count, " KV slots wanted for tree nodes, ", pool_.free_slots(),
                      " are free; raise kv_tokens"));
  }
  // Depth-first order of everything evaluated so far and now: every KV token is then seen by
  // one run of the new rows.
  order_.assign(arena);
  kv_nodes_.assign(evaluated_.begin(), evaluated_.end());
  kv_nodes_.insert(kv_nodes_.end(), nodes.begin(), nodes.end());
  const auto row_of = [&](std::int32_t node) {
    return order_.row_of_node[static_cast<std::size_t>(node)];
  };
  const auto by_row = [&](std::int32_t a, std::int32_t b) { return row_of(a) < row_of(b); };
  std::sort(kv_nodes_.begin(), kv_nodes_.end(), by_row);
  rows_.assign(nodes.begin(), nodes.end());
  std::sort(rows_.begin(), rows_.end(), by_row);

  const std::int32_t prefix = state_->length();
  visible_.clear();
  for (std::int32_t i = 0; i < prefix; ++i) {
    const KvSlot slot = state_->draft_slots[static_cast<std::size_t>(i)];
    if (slot != no_slot) visible_.push_back({slot, 0, count});
  }
  tokens_.clear();
  positions_.clear();
  row_index_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    const auto node = static_cast<std::size_t>(rows_[static_cast<std::size_t>(i)]);
    slot_of_node_[node] = write_slots_[static_cast<std::size_t>(i)];
    tokens_.push_back(arena.token[node]);
    positions_.push_back(prefix - 1 + arena.depth[node]);
    row_index_.push_back(i);
  }
  for (const std::int32_t node : kv_nodes_) {
    const std::int32_t row = row_of(node);
    const std::int32_t past = row + order_.subtree_rows[static_cast<std::size_t>(row)];
    const auto first = std::partition_point(rows_.begin(), rows_.end(),
                                            [&](std::int32_t n) { return row_of(n) < row; });
    const auto last =
        std::partition_point(first, rows_.end(), [&](std::int32_t n) { return row_of(n) < past; });
    if (first == last) continue;  // no new row descends from it
    visible_.push_back({slot_of_node_[static_cast<std::size_t>(node)],
                        static_cast<std::int32_t>(first - rows_.begin()),
                        static_cast<std::int32_t>(last - rows_.begin())});
  }
  evaluated_.insert(evaluated_.end(), nodes.begin(), nodes.end());
  plan_.assign(visible_, count,
               choose_chunk_tokens(static_cast<std::int64_t>(visible_.size()),
                                   model_.config().kv_heads, model_.device().threads()));
  ForwardBatch batch{tokens_, positions_, write_slots_, &plan_, row_index_};
  const float* logits = nullptr;
  {
    const Stopwatch timing(forward_seconds_);
    logits = model_.forward(batch, pool_);
  }
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  for (std::size_t i = 0; i < rows_.size(); ++i) process(logits + i * vocab, arena, rows_[i]);
}

void DraftRunner::process(const float* logits, const TokenTree& arena, std::int32_t node) {
  const Stopwatch timing(sampling_seconds_);
  const std::span<const float> row(logits, common_vocab_);
  const std::span<float> declared = drawer_.prepare(node);
  const std::span<float> probs = declared.first(common_vocab_);
  std::fill(declared.begin() + static_cast<std::ptrdiff_t>(common_vocab_), declared.end(), 0.0f);
  if (setting_.params.repetition_penalty == 1.0) {
    process_logits(row, setting_.params, nullptr, scratch_, probs);
  } else {
    const PathCounts counts(state_->counts, arena, node);
    process_logits(row, setting_.params, &state_->counts, scratch_, probs);
  }
  drawer_.ready(node);
}

void DraftRunner::forget(std::span<const std::int32_t> nodes) {
  freed_.clear();
  for (const std::int32_t node : nodes) {
    const auto n = static_cast<std::size_t>(node);
    if (n >= slot_of_node_.size() || slot_of_node_[n] < 0) continue;
    freed_.push_back(slot_of_node_[n]);
    slot_of_node_[n] = -1;
  }
  if (freed_.empty()) return;
  pool_.give_back(freed_);
  std::erase_if(evaluated_, [&](std::int32_t node) {
    return slot_of_node_[static_cast<std::size_t>(node)] < 0;
  });
}

std::optional<DrawnChild> DraftRunner::child(const TokenTree& arena, std::int32_t node,
                                             std::int32_t rank) {
  return drawer_.child(arena, node, rank);
}

void DraftRunner::commit(const TokenTree& tree, std::span<const std::int32_t> path) {
  for (const std::int32_t node : path) {
    const auto source = static_cast<std::size_t>(tree.source[static_cast<std::size_t>(node)]);
    if (source >= slot_of_node_.size() || slot_of_node_[source] < 0) break;
    state_->draft_slots.push_back(slot_of_node_[source]);
    slot_of_node_[source] = -1;
  }
  freed_.clear();
  for (const std::int32_t node : evaluated_) {
    const KvSlot slot = slot_of_node_[static_cast<std::size_t>(node)];
    if (slot >= 0) freed_.push_back(slot);
  }
  pool_.give_back(freed_);
  slot_of_node_.clear();
  evaluated_.clear();
}

}  // namespace coppice
