// Rows of logits to their statistics: a block per row, which reads the row a few times over (it
// lies in the L2 cache).
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/sampling/row_statistics.cuh"
#include "kernels/cuda/sampling/sampling.h"

namespace coppice::cuda {
namespace {

constexpr int token_bit_words = most_vocab / 32;

/// Shared memory of a block: which tokens are penalised, while the row is read for the first
/// time; the filters' histograms from then on.
union RowSpace {
  std::uint32_t token_bits[token_bit_words];
  SelectSpace select;
};
static_assert(sizeof(RowSpace) + sizeof(StatisticsScratch) <= 48 * 1024);

/// Text and tree path into bits: whatever occurs in both, or twice, is penalised once.
__device__ void gather_token_bits(std::uint32_t* bits, const PenaltyView& penalty,
                                  std::int32_t text, std::int32_t width, std::int32_t path_begin,
                                  std::int32_t path_count) {
  const std::uint32_t* const of_text = penalty.text_bits + std::int64_t{text} * penalty.text_words;
  for (int i = static_cast<int>(threadIdx.x); i < (width + 31) / 32; i += select_threads) {
    bits[i] = of_text[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < path_count; i += select_threads) {
    const std::int32_t token = penalty.path_tokens[path_begin + i];
    if (token >= 0 && token < width) atomicOr(&bits[token / 32], 1u << (token % 32));
  }
  __syncthreads();
}

/// Applies a token's terms to its raw logit: bias, repetition penalty where `seen`, then the
/// penalties of the new text, which holds the token `count` times. (kernels/logits.h)
__device__ float with_terms(float raw, const SamplingSetting& setting, float bias, bool seen,
                            std::int32_t count) {
  float x = cleaned(__fadd_rn(raw, bias));
  if (seen) x = penalised(x, setting.penalty);
  if (count == 0) return x;
  const float times = __fmul_rn(static_cast<float>(count), setting.frequency);
  return __fsub_rn(__fsub_rn(x, times), setting.presence);
}

/// Applies terms to a row's logits in place, of the text's tokens and of those on the row's path.
/// Where `bits` has such a token it is cleared: the repetition penalty was applied. Null: there is
/// no such penalty. Ends with a barrier.
__device__ void apply_terms(float* logits, std::uint32_t* bits, const SamplingSetting& setting,
                            const PenaltyView& penalty, std::int32_t width, std::int32_t path_begin,
                            std::int32_t path_count) {
  if (setting.terms == 0 && setting.counts_path == 0) return;
  const TokenTerm* const terms = penalty.terms + setting.first_term;
  const std::int32_t* const path = penalty.path_tokens + path_begin;
  if (setting.counts_path == 0) path_count = 0;
  const auto on_path = [&](std::int32_t token, std::int32_t begin, std::int32_t end) {
    std::int32_t times = 0;
    for (std::int32_t i = begin; i < end; ++i) times += path[i] == token ? 1 : 0;
    return times;
  };
  const auto apply = [&](std::int32_t token, float bias, std::int32_t count) {
    const std::uint32_t bit = 1u << (token % 32);
    bool seen = false;
    // Others clear bits of the same word meanwhile, never this one.
    if (bits != nullptr) seen = (atomicAnd(&bits[token / 32], ~bit) & bit) != 0;
    logits[token] = with_terms(logits[token], setting, bias, seen, count);
  };
  for (int i = static_cast<int>(threadIdx.x); i < setting.terms; i += select_threads) {
    const TokenTerm term = terms[i];
    if (term.token >= width) continue;
    const std::int32_t count =
        setting.counts_path == 0 ? 0 : term.count + on_path(term.token, 0, path_count);
    apply(term.token, term.bias, count);
  }
  for (int i = static_cast<int>(threadIdx.x); i < path_count; i += select_threads) {
    const std::int32_t token = path[i];
    if (token < 0 || token >= width || on_path(token, 0, i) > 0) continue;
    std::int32_t begin = 0, end = setting.terms;  // where the text has terms of the token
    while (begin < end) {
      const std::int32_t middle = (begin + end) / 2;
      if (terms[middle].token < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    if (begin < setting.terms && terms[begin].token == token) continue;
    apply(token, 0.0f, on_path(token, i, path_count));
  }
  __syncthreads();
}

/// The four bits of a group's tokens.
__device__ std::uint32_t group_bits(const std::uint32_t* bits, std::int32_t group) {
  return bits[group / 8] >> (group % 8 * 4) & 0xfu;
}

/// A group's logits, penalised where `seen` has a bit, before they are cleaned a second time.
__device__ Quad penalised_quad(const Quad& raw, std::uint32_t seen, float penalty) {
  Quad quad = raw;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if ((seen >> j & 1u) != 0) quad.at[j] = penalised(cleaned(raw.at[j]), penalty);
  }
  return quad;
}

/// The four bits of a group's tokens that may follow.
__device__ std::uint32_t allowed_bits(const MaskView& masks, std::int32_t mask,
                                      std::int32_t group) {
  if (mask < 0) return 0xfu;
  return group_bits(masks.bits + std::int64_t{mask} * masks.words, group);
}

/// Minus infinity for tokens that may not follow.
__device__ Quad masked_quad(Quad quad, std::uint32_t allowed) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if ((allowed >> j & 1u) == 0) quad.at[j] = minus_infinity();
  }
  return quad;
}

__device__ Quad cleaned_quad(Quad quad, bool& finite) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    finite = finite || isfinite(quad.at[j]);
    quad.at[j] = cleaned(quad.at[j]);
  }
  return quad;
}

template <bool kFaulty>
__global__ void __launch_bounds__(select_threads)
    process_draft_rows_kernel(DrawView draw, float* logits, std::int64_t stride, StoreView store) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ RowSpace space;
  __shared__ StatisticsScratch scratch;
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  if (row_index >= draw.head->rows) return;
  const DrawInput input = draw.rows[row_index];
  const SamplingSetting& setting = draw.settings[input.text];
  const bool is_penalised = setting.penalised != 0;
  if (is_penalised) {
    gather_token_bits(space.token_bits, draw.penalty, setting.text, store.vocab, input.path_begin,
                      input.path_count);
  }
  apply_terms(logits + row_index * stride, is_penalised ? space.token_bits : nullptr, setting,
              draw.penalty, store.vocab, input.path_begin, input.path_count);
  const Row from(logits + row_index * stride, store.vocab);
  float* const to = store.logits + input.store * store.stride;
  // Only this thread reads what it writes, here and later: no barrier is needed.
  const RowStatistics statistics = row_statistics<kFaulty>(
      space.select, scratch, Row(to, store.vocab), setting, [&](std::int32_t group, bool& finite) {
        Quad quad = from.raw(group);
        if (is_penalised) {
          quad = penalised_quad(quad, group_bits(space.token_bits, group), setting.penalty);
        }
        quad = masked_quad(quad, allowed_bits(draw.masks, input.mask, group));
        quad = cleaned_quad(quad, finite);
        // The stride is a multiple of 4: beyond the row's end there is room.
        *reinterpret_cast<float4*>(to + 4 * group) =
            make_float4(quad.at[0], quad.at[1], quad.at[2], quad.at[3]);
        return quad;
      });
  if (threadIdx.x == 0) store.statistics[input.store] = statistics;
}

__global__ void __launch_bounds__(select_threads)
    process_target_rows_kernel(JudgeView judge, TargetView target) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ RowSpace space;
  __shared__ StatisticsScratch scratch;
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  if (row_index >= judge.head->rows) return;
  const JudgeInput& input = judge.rows[row_index];
  const SamplingSetting& setting = judge.settings[input.text];
  const bool is_penalised = setting.penalised != 0;
  if (is_penalised) {
    gather_token_bits(space.token_bits, judge.penalty, setting.text, target.vocab, input.path_begin,
                      input.path_count);
  }
  float* const logits = target.logits + std::int64_t{row_index} * target.vocab;
  apply_terms(logits, is_penalised ? space.token_bits : nullptr, setting, judge.penalty,
              target.vocab, input.path_begin, input.path_count);
  const Row row(logits, target.vocab);
  const RowStatistics statistics = row_statistics<false>(
      space.select, scratch, row, setting, [&](std::int32_t group, bool& finite) {
        Quad quad = row.raw(group);
        const std::uint32_t seen = is_penalised ? group_bits(space.token_bits, group) : 0;
        const std::uint32_t allowed = allowed_bits(judge.masks, input.mask, group);
        const std::uint32_t changed = seen | (~allowed & 0xfu);
        if (changed != 0) {
          if (seen != 0) quad = penalised_quad(quad, seen, setting.penalty);
          quad = masked_quad(quad, allowed);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if ((changed >> j & 1u) != 0 && 4 * group + j < target.vocab) {
              logits[4 * group + j] = quad.at[j];
            }
          }
        }
        return cleaned_quad(quad, finite);
      });
  if (threadIdx.x == 0) target.statistics[row_index] = statistics;
}

__global__ void __launch_bounds__(select_threads)
    score_rows_kernel(ScoreView score, const float* logits, std::int64_t stride, std::int32_t vocab,
                      float* scores) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ SelectSpace space;
  __shared__ StatisticsScratch scratch;
  const SamplingSetting& setting = *score.setting;
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  if (row_index >= score.head->rows) return;
  const Row row(logits + row_index * stride, vocab);
  const RowStatistics statistics = row_statistics<false>(
      space, scratch, row, setting,
      [&](std::int32_t group, bool& finite) { return cleaned_quad(row.raw(group), finite); });
  if (threadIdx.x != 0) return;
  const std::int32_t token = score.next[row_index];
  const bool known = token >= 0 && token < vocab;
  scores[row_index] = statistics.argmax < 0 ? -1.0f
                      : known ? probability(statistics, cleaned(row.logits[token]), token)
                              : 0.0f;
}

}  // namespace

void process_draft_rows(const DrawView& draw, float* logits, std::int64_t stride,
                        const StoreView& store, std::int32_t rows, bool faulty,
                        cudaStream_t stream) {
  const auto kernel = faulty ? process_draft_rows_kernel<true> : process_draft_rows_kernel<false>;
  launch_early(kernel, dim3(static_cast<unsigned>(rows)), select_threads, 0, stream, draw, logits,
               stride, store);
  check_launch("process_draft_rows");
}

void process_target_rows(const JudgeView& judge, const TargetView& target, std::int32_t rows,
                         cudaStream_t stream) {
  launch_early(process_target_rows_kernel, dim3(static_cast<unsigned>(rows)), select_threads, 0,
               stream, judge, target);
  check_launch("process_target_rows");
}

void score_rows(const ScoreView& score, const float* logits, std::int64_t stride,
                std::int32_t vocab, float* scores, std::int32_t rows, cudaStream_t stream) {
  launch_early(score_rows_kernel, dim3(static_cast<unsigned>(rows)), select_threads, 0, stream,
               score, logits, stride, vocab, scores);
  check_launch("score_rows");
}

}  // namespace coppice::cuda
