#include "kernels/cuda/sampling/sampler_plan.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::cuda {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Places arrays one after the other.
class Layout {
 public:
  explicit Layout(std::size_t begin = 0) : bytes_(begin) {}

  template <typename T>
  void place(Place<T>& place, std::size_t count) {
    place.at = bytes_;
    bytes_ += (count * sizeof(T) + alignment - 1) / alignment * alignment;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t alignment = 256;
  std::size_t bytes_;
};

void check_limits(const SamplerLimits& limits) {
  for (const std::int64_t vocab : {limits.target_vocab, limits.draft_vocab}) {
    if (vocab < 0 || vocab > most_vocab) {
      throw_usage(cat("CUDA sampler: a vocabulary of ", vocab, " tokens, where at most ",
                      most_vocab, " can be sampled from; use --device cpu"));
    }
  }
  if (limits.target_vocab < 1 || limits.rows < 1 || limits.store_rows < 0 || limits.texts < 1) {
    throw_failure(cat("CUDA sampler: limits of ", limits.target_vocab, " tokens, ", limits.rows,
                      " rows, ", limits.store_rows, " store rows, ", limits.texts, " texts"));
  }
}

}  // namespace

SamplerPlan plan_sampler(const SamplerLimits& limits) {
  check_limits(limits);
  SamplerPlan plan;
  plan.target_vocab = static_cast<std::int32_t>(limits.target_vocab);
  plan.common_vocab = static_cast<std::int32_t>(std::min(limits.target_vocab, limits.draft_vocab));
  // Whole groups of four tokens have room.
  plan.store_stride = (to_size(plan.common_vocab) + 3) / 4 * 4;
  plan.text_words = (to_size(limits.target_vocab) + 31) / 32;
  const std::size_t rows = to_size(limits.rows), store_rows = to_size(limits.store_rows),
                    texts = to_size(limits.texts);
  // A node that is drawn from has ancestors that were, and a row of the target's pass has its
  // ancestors in it: paths are no longer than the store, or the pass, has rows.
  plan.path_tokens = rows * std::max(rows, store_rows);
  // One text's tokens have room, and of many texts more than any usual answer has.
  constexpr std::size_t usual_terms = 4096;
  plan.terms = to_size(limits.target_vocab) + texts * usual_terms;

  Layout inputs;
  inputs.place(plan.draw.head, 1);
  inputs.place(plan.draw.settings, texts);
  inputs.place(plan.draw_rows, rows);
  inputs.place(plan.draw.text_bits, texts * plan.text_words);
  inputs.place(plan.draw.path_tokens, plan.path_tokens);
  inputs.place(plan.draw.mask_bits, rows * plan.text_words);  // each row may have its own
  inputs.place(plan.draw.terms, plan.terms);
  inputs.place(plan.more.head, 1);
  inputs.place(plan.more.settings, 1);
  inputs.place(plan.more_rows, 1);
  inputs.place(plan.judge.head, 1);
  inputs.place(plan.judge.settings, texts);
  inputs.place(plan.judge_rows, rows);
  inputs.place(plan.judge.child_row, rows);
  inputs.place(plan.judge.child_token, rows);
  inputs.place(plan.judge.text_bits, texts * plan.text_words);
  inputs.place(plan.judge.path_tokens, plan.path_tokens);
  inputs.place(plan.judge.mask_bits, rows * plan.text_words);
  inputs.place(plan.judge.terms, plan.terms);
  inputs.place(plan.score.head, 1);
  inputs.place(plan.score.settings, 1);
  inputs.place(plan.score.next, rows);

  const std::size_t draft_slices = to_size(slices_of(plan.common_vocab));
  const std::size_t slice_places = draft_slices * to_size(drawn_children);
  Layout device(inputs.bytes());
  device.place(plan.store_logits, store_rows * plan.store_stride);
  device.place(plan.store_statistics, store_rows);
  device.place(plan.target_statistics, rows);
  device.place(plan.draw_slices, rows * slice_places);
  device.place(plan.draw_sums, rows * draft_slices);
  device.place(plan.more_slices, slice_places);
  device.place(plan.more_sums, draft_slices);
  device.place(plan.target_slices, rows * to_size(slices_of(plan.target_vocab)));
  device.place(plan.outcomes, rows);
  device.place(plan.draw_finished, 1);
  device.place(plan.judge_finished, 1);
  device.place(plan.scores, rows);
  plan.device_bytes = device.bytes();

  Layout host(inputs.bytes());
  host.place(plan.drawn, rows);
  host.place(plan.drawn_more, 1);
  host.place(plan.tree_verdicts, texts);
  host.place(plan.accepted_rows, rows);
  host.place(plan.draw_mark, 1);
  host.place(plan.judge_mark, 1);
  host.place(plan.host_scores, rows);
  plan.host_bytes = host.bytes();
  return plan;
}

}  // namespace coppice::cuda
