// Where a sampler's arrays lie in its one block of device memory and its one block of page-locked
// memory, which begin alike: with the inputs that are copied from the one to the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sampling/sampling.h"
#include "kernels/device_sampler.h"

namespace coppice::cuda {

/// An array's place in bytes, aligned to 256.
template <typename T>
struct Place {
  std::size_t at = 0;

  T* in(void* memory) const { return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + at); }
};

/// Inputs of one job, sent as one range from `head` on. Those that only a penalty needs lie
/// last; tokens of paths, of which there are more or fewer, at the very end.
struct JobPlan {
  Place<BatchHead> head;
  Place<SamplingSetting> settings;             ///< by text
  Place<std::int32_t> child_row, child_token;  ///< judging
  Place<std::int32_t> next;                    ///< scoring
  Place<std::uint32_t> text_bits;
  Place<std::int32_t> path_tokens;
  Place<std::uint32_t> mask_bits;  ///< one mask after the other, each of text_words
  Place<TokenTerm> terms;          ///< one text's after the other's
};

struct SamplerPlan {
  std::int32_t target_vocab = 0;
  std::int32_t common_vocab = 0;  ///< tokens that draft and target know; 0: no draft
  std::size_t store_stride = 0;   ///< of a row of store_logits
  std::size_t text_words = 0;     ///< of a text's text_bits
  std::size_t path_tokens = 0;    ///< of a batch, at most
  std::size_t terms = 0;          ///< likewise

  // In both.
  JobPlan draw, more, judge, score;
  Place<DrawInput> draw_rows, more_rows;
  Place<JudgeInput> judge_rows;

  // In device memory.
  Place<float> store_logits;
  Place<RowStatistics> store_statistics, target_statistics;
  Place<std::uint64_t> draw_slices, more_slices, target_slices;
  Place<RowSums> draw_sums, more_sums;
  Place<RowOutcome> outcomes;
  Place<std::uint32_t> draw_finished, judge_finished;
  Place<float> scores;
  std::size_t device_bytes = 0;

  // In page-locked memory.
  Place<DrawnRow> drawn, drawn_more;
  Place<TreeVerdict> tree_verdicts;
  Place<std::int32_t> accepted_rows;
  Place<std::uint32_t> draw_mark, judge_mark;
  Place<float> host_scores;
  std::size_t host_bytes = 0;
};

/// Error(usage) for a vocabulary beyond most_vocab.
SamplerPlan plan_sampler(const SamplerLimits& limits);

}  // namespace coppice::cuda
