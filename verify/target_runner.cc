#include "verify/target_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "models/path_counts.h"

namespace coppice {

TargetRunner::TargetRunner(Model& model, KvPool& pool)
    : model_(model),
      pool_(pool),
      prefix_(model, pool),
      probs_(static_cast<std::size_t>(model.config().vocab_size)),
      slots_(&pool) {}

bool TargetRunner::extend(SequenceState& state, std::int32_t end) {
  if (state.target_slots.size() >= end) return true;
  return prefix_.extend(state.tokens, end, state.target_slots);
}

bool TargetRunner::prefill(SequenceState& state) {
  const bool done = extend(state, state.length() - 1);
  wait();
  return done;
}

bool TargetRunner::prefill_to_last_pass(SequenceState& state) {
  const std::int32_t rows = late_rows(state) + 1, most = model_.options().max_rows;
  const std::int32_t passes = (rows + most - 1) / most;
  // Not all that fits: a pass of the few rows left over would cost about as much as one of many.
  return extend(state, state.length() - (rows + passes - 1) / passes);
}

TargetRunner::Pass TargetRunner::pass(SequenceState& state, const TokenTree& tree,
                                      const SamplingParams& params, const Prepare& prepare) {
  if (slots_.size() > 0) throw_failure("target: a pass begins before the last one has ended");
  late_ = late_rows(state);
  state.target_slots.make_room(late_ + tree.nodes());  // so that keeping cannot fail
  if (!slots_.take(late_ + tree.nodes())) return nullptr;
  Pass held(this);
  queue(state, tree, params, prepare);
  return held;
}

void TargetRunner::queue(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
                         const Prepare& prepare) {
  state_ = &state;
  tree_ = &tree;
  params_ = params;
  ordering_seconds_ = 0.0;
  {
    const Stopwatch timing(ordering_seconds_);
    order_.assign(tree);
  }

  tokens_.clear();
  positions_.clear();
  row_index_.clear();
  const std::int32_t root = state.length() - 1, rows = late_ + tree.nodes();
  const std::span<const KvSlot> slots = slots_.all();
  segments_.assign(1, {state.target_slots.all(), 0, rows, true});
  for (std::int32_t row = 0; row < late_; ++row) {
    const std::int32_t position = root - late_ + row;
    const std::int32_t first = fault_ == PassFault::late_rows_ahead ? std::max(0, row - 1) : row;
    const std::int32_t end = fault_ == PassFault::late_rows_hidden ? late_ : rows;
    segments_.push_back({slots.subspan(static_cast<std::size_t>(row), 1), first, end});
    tokens_.push_back(state.tokens[static_cast<std::size_t>(position)]);
    positions_.push_back(position);
  }
  for (std::int32_t r = 0; r < tree.nodes(); ++r) {
    const std::int32_t row = late_ + r;
    const auto node = static_cast<std::size_t>(order_.node_of_row[static_cast<std::size_t>(r)]);
    segments_.push_back({slots.subspan(static_cast<std::size_t>(row), 1), row,
                         row + order_.subtree_rows[static_cast<std::size_t>(r)]});
    tokens_.push_back(tree.token[node]);
    positions_.push_back(root + (fault_ == PassFault::rope_by_index ? r : tree.depth[node]));
    row_index_.push_back(fault_ == PassFault::logits_by_batch ? r : row);
  }
  const ForwardBatch batch{tokens_, positions_, slots, segments_, row_index_};
  PassTail* tail = prepare ? prepare(order_) : nullptr;
  penalised_ = tail != nullptr && params.repetition_penalty != 1.0;
  logits_ = model_.forward(batch, pool_, tail);
}

std::span<const float> TargetRunner::logits(std::int32_t node) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  const auto row = static_cast<std::size_t>(order_.row_of_node[static_cast<std::size_t>(node)]);
  if (model_.device().shares_host_memory()) return {logits_ + row * vocab, vocab};
  downloaded_.resize(vocab);
  model_.device().download(downloaded_.data(), logits_ + row * vocab, vocab * sizeof(float));
  return downloaded_;
}

std::span<const float> TargetRunner::distribution(std::int32_t node) {
  return distribution_at(node, params_);
}

std::span<const float> TargetRunner::distribution_at(std::int32_t node,
                                                     const SamplingParams& params) {
  if (params.repetition_penalty == 1.0 || penalised_) {
    process_logits(logits(node), params, nullptr, scratch_, probs_);
  } else {
    const PathCounts path(state_->counts, *tree_, node);
    process_logits(logits(node), params, &state_->counts, scratch_, probs_);
  }
  return probs_;
}

TokenId TargetRunner::argmax(std::int32_t node) {
  if (params_.repetition_penalty == 1.0 || penalised_) {
    return argmax_logits(logits(node), params_, nullptr);
  }
  const PathCounts path(state_->counts, *tree_, node);
  return argmax_logits(logits(node), params_, &state_->counts);
}

void TargetRunner::commit(std::span<const std::int32_t> path) {
  KvSlots& kept = state_->target_slots;
  for (std::int32_t row = 0; row <= late_; ++row) kept.keep(slots_, row);  // the last is the root's
  for (const std::int32_t node : path) {
    kept.keep(slots_, late_ + order_.row_of_node[static_cast<std::size_t>(node)]);
  }
}

}  // namespace coppice
