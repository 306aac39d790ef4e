#include "verify/target_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "models/path_counts.h"

namespace coppice {

// --- a text's rows ----------------------------------------------------------------------------

TargetRows::TargetRows(TargetRunner& runner) : runner_(runner), slots_(&runner.pool_) {}

std::span<const float> TargetRows::logits(std::int32_t node) {
  const auto vocab = static_cast<std::size_t>(runner_.model_.config().vocab_size);
  const auto row =
      static_cast<std::size_t>(first_logits_ + order_.row_of_node[static_cast<std::size_t>(node)]);
  const float* const from = runner_.logits_ + row * vocab;
  Device& device = runner_.model_.device();
  if (device.shares_host_memory()) return {from, vocab};
  runner_.downloaded_.resize(vocab);
  device.download(runner_.downloaded_.data(), from, vocab * sizeof(float));
  return runner_.downloaded_;
}

// With minus infinity for tokens that may not follow, and the text's bias.
std::span<const float> TargetRows::ruled_logits(std::int32_t node) {
  const auto mask = tree_->mask(node);
  return masked_logits(logits(node), mask.get(), runner_.scratch_,
                       runner_.changed_ ? std::span<const TokenBias>() : state_->bias);
}

std::span<const float> TargetRows::distribution(std::int32_t node) {
  return distribution_at(node, params_);
}

std::span<const float> TargetRows::distribution_at(std::int32_t node,
                                                   const SamplingParams& params) {
  std::vector<float>& probs = runner_.probs_;
  if (runner_.changed_) {
    process_logits(ruled_logits(node), params, nullptr, runner_.scratch_, probs);
  } else {
    const PathCounts path(*state_, params, *tree_, node);
    process_logits(ruled_logits(node), params, path.seen(), runner_.scratch_, probs, path.fresh());
  }
  return probs;
}

TokenId TargetRows::argmax(std::int32_t node) {
  if (runner_.changed_) return argmax_logits(ruled_logits(node), params_, nullptr);
  const PathCounts path(*state_, params_, *tree_, node);
  return argmax_logits(ruled_logits(node), params_, path.seen(), path.fresh());
}

void TargetRows::commit(std::span<const std::int32_t> path) {
  KvSlots& kept = state_->target_slots;
  for (std::int32_t row = 0; row < prefill_rows_; ++row) kept.keep(slots_, row);
  if (tree_ == nullptr) return;
  kept.keep(slots_, prefill_rows_);  // the root's
  for (const std::int32_t node : path) {
    kept.keep(slots_, prefill_rows_ + order_.row_of_node[static_cast<std::size_t>(node)]);
  }
}

// --- passes -----------------------------------------------------------------------------------

TargetRunner::TargetRunner(Model& model, KvPool& pool)
    : model_(model),
      pool_(pool),
      prefix_(model, pool, PassLayout::Of::target),
      probs_(static_cast<std::size_t>(model.config().vocab_size)) {}

bool TargetRunner::extend(SequenceState& state, std::int32_t end) {
  if (state.target_kv() >= end) return true;
  return prefix_.extend(state.tokens, end, state.base, state.target_slots, state.base.length());
}

bool TargetRunner::prefill(SequenceState& state) {
  const bool done = extend(state, state.length() - 1);
  wait();
  return done;
}

bool TargetRunner::prefill_to_last_pass(SequenceState& state) {
  const std::int32_t rows = prefill_rows(state) + 1, most = model_.options().max_rows;
  const std::int32_t passes = (rows + most - 1) / most;
  // Not all that fits: a pass of the few rows left over would cost about as much as one of many.
  return extend(state, state.length() - (rows + passes - 1) / passes);
}

void TargetRunner::end() {
  for (std::size_t t = 0; t < count_; ++t) texts_[t].slots_.cut(0);
  count_ = 0;
}

TargetRunner::Pass TargetRunner::pass(std::span<const Text> texts, const Prepare& prepare) {
  if (count_ > 0) throw_failure("target: a pass begins before the last one has ended");
  while (texts_.size() < texts.size()) texts_.emplace_back(*this);
  Pass held(this);
  count_ = texts.size();
  for (std::size_t t = 0; t < count_; ++t) {
    const Text& asked = texts[t];
    TargetRows& text = texts_[t];
    text.state_ = asked.state;
    text.tree_ = asked.tree;
    text.params_ = asked.params;
    text.prefill_rows_ = asked.tree == nullptr ? asked.prefill_rows : prefill_rows(*asked.state);
    asked.state->target_slots.make_room(asked.rows());  // so that keeping cannot fail
  }
  ordering_seconds_ = 0.0;
  {
    const Stopwatch timing(ordering_seconds_);
    for (std::size_t t = 0; t < count_; ++t) {
      if (texts_[t].tree_ != nullptr) texts_[t].order_.assign(*texts_[t].tree_);
    }
  }
  for (std::size_t t = 0; t < count_; ++t) {
    if (!take_slots(texts_[t])) return nullptr;
  }
  segments_.clear();
  write_slots_.clear();
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  layout_.begin(PassLayout::Of::target);
  for (std::size_t t = 0; t < count_; ++t) {
    const SequenceState& state = *texts_[t].state_;
    layout_.add(state.base, state.target_slots.all(), texts_[t].slots_.size(), state.base.length());
  }
  layout_.arrange();
  ++passes_;
  by_text_ += layout_.tokens_by_text();
  by_tree_ += layout_.tokens();
  for (const std::int32_t index : layout_.order()) {
    TargetRows& text = texts_[static_cast<std::size_t>(index)];
    layout_.list_before(index, segments_);
    text.own_segment_ = segments_.size() - 1;
    queue(text);
  }
  if (change_) change_(pass_rows());
  const ForwardBatch batch{tokens_, positions_, write_slots_, segments_, logit_rows_, division_};
  PassEpilogue* const epilogue = prepare ? prepare(*this) : nullptr;
  changed_ = epilogue != nullptr;
  logits_ = model_.forward(batch, pool_, epilogue);
  return held;
}

// False: there are too few.
bool TargetRunner::take_slots(TargetRows& text) {
  const SequenceState& state = *text.state_;
  text.positions_.resize(static_cast<std::size_t>(text.prefill_rows_));
  std::iota(text.positions_.begin(), text.positions_.end(), state.target_kv());
  if (text.tree_ != nullptr) {
    for (const std::int32_t node : text.order_.node_of_row) {
      text.positions_.push_back(state.length() - 1 +
                                text.tree_->depth[static_cast<std::size_t>(node)]);
    }
  }
  return text.slots_.take(text.positions_, state.target_slots.open_page(state.base.length()));
}

// Lists a text's rows behind those listed.
void TargetRunner::queue(TargetRows& text) {
  const SequenceState& state = *text.state_;
  const std::span<const KvSlot> slots = text.slots_.all();
  const auto first = static_cast<std::int32_t>(tokens_.size());
  const std::int32_t rows = text.slots_.size();
  write_slots_.insert(write_slots_.end(), slots.begin(), slots.end());
  for (std::int32_t row = 0; row < text.prefill_rows_; ++row) {
    const std::int32_t position = text.positions_[static_cast<std::size_t>(row)];
    segments_.push_back({slots.subspan(static_cast<std::size_t>(row), 1), first + row, first + rows,
                         false, position});
    tokens_.push_back(state.tokens[static_cast<std::size_t>(position)]);
    positions_.push_back(position);
  }
  text.first_logits_ = static_cast<std::int32_t>(logit_rows_.size());
  if (text.tree_ == nullptr) return;
  const TokenTree& tree = *text.tree_;
  for (std::int32_t r = 0; r < tree.nodes(); ++r) {
    const std::int32_t row = text.prefill_rows_ + r;
    const auto node =
        static_cast<std::size_t>(text.order_.node_of_row[static_cast<std::size_t>(r)]);
    const std::int32_t position = text.positions_[static_cast<std::size_t>(row)];
    segments_.push_back({slots.subspan(static_cast<std::size_t>(row), 1), first + row,
                         first + row + text.order_.subtree_rows[static_cast<std::size_t>(r)], false,
                         position});
    tokens_.push_back(tree.token[node]);
    positions_.push_back(position);
    logit_rows_.push_back(first + row);
  }
}

PassRows TargetRunner::pass_rows() {
  PassRows rows{{}, segments_, positions_, logit_rows_};
  for (const std::int32_t index : layout_.order()) {
    TargetRows& text = texts_[static_cast<std::size_t>(index)];
    rows.texts.push_back({text.state_, text.tree_, segments_[text.own_segment_].q_begin,
                          text.prefill_rows_, &text.first_logits_, text.own_segment_});
  }
  return rows;
}

}  // namespace coppice
