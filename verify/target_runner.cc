#include "verify/target_runner.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "models/path_counts.h"

namespace coppice {

TargetRunner::TargetRunner(Model& model, KvPool& pool)
    : model_(model),
      pool_(pool),
      prefix_(model, pool),
      probs_(static_cast<std::size_t>(model.config().vocab_size)) {}

bool TargetRunner::extend(SequenceState& state, std::int32_t end) {
  if (static_cast<std::int32_t>(state.target_slots.size()) >= end) return true;
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

bool TargetRunner::pass(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
                        const Prepare& prepare) {
  late_ = late_rows(state);
  write_slots_.resize(static_cast<std::size_t>(late_ + tree.nodes()));
  // So that neither giving slots back nor keeping them can fail.
  freed_.reserve(write_slots_.size());
  make_room(state.target_slots, write_slots_.size());
  if (!pool_.take(write_slots_)) {
    write_slots_.clear();
    return false;
  }
  try {
    queue(state, tree, params, prepare);
  } catch (...) {
    abandon();
    throw;
  }
  return true;
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

  visible_.clear();
  tokens_.clear();
  positions_.clear();
  row_index_.clear();
  const std::int32_t root = state.length() - 1, rows = late_ + tree.nodes();
  for (std::int32_t row = 0; row < late_; ++row) {
    const std::int32_t position = root - late_ + row;
    const std::int32_t first = fault_ == PassFault::late_rows_ahead ? std::max(0, row - 1) : row;
    const std::int32_t end = fault_ == PassFault::late_rows_hidden ? late_ : rows;
    visible_.push_back({write_slots_[static_cast<std::size_t>(row)], first, end});
    tokens_.push_back(state.tokens[static_cast<std::size_t>(position)]);
    positions_.push_back(position);
  }
  for (std::int32_t r = 0; r < tree.nodes(); ++r) {
    const std::int32_t row = late_ + r;
    const auto node = static_cast<std::size_t>(order_.node_of_row[static_cast<std::size_t>(r)]);
    visible_.push_back({write_slots_[static_cast<std::size_t>(row)], row,
                        row + order_.subtree_rows[static_cast<std::size_t>(r)]});
    tokens_.push_back(tree.token[node]);
    positions_.push_back(root + (fault_ == PassFault::rope_by_index ? r : tree.depth[node]));
    row_index_.push_back(fault_ == PassFault::logits_by_batch ? r : row);
  }
  const std::span<const KvSlot> seen_by_all(state.target_slots);
  const ForwardBatch batch{tokens_, positions_, write_slots_, seen_by_all, visible_, row_index_};
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
  const auto keep = [&](std::int32_t row) {
    KvSlot& slot = write_slots_[static_cast<std::size_t>(row)];
    state_->target_slots.push_back(slot);
    slot = -1;
  };
  for (std::int32_t row = 0; row <= late_; ++row) keep(row);  // the root's follows the late ones
  for (const std::int32_t node : path) {
    keep(late_ + order_.row_of_node[static_cast<std::size_t>(node)]);
  }
  abandon();
}

void TargetRunner::abandon() {
  freed_.clear();
  for (const KvSlot slot : write_slots_) {
    if (slot >= 0) freed_.push_back(slot);
  }
  pool_.give_back(freed_);
  write_slots_.clear();
}

}  // namespace coppice
