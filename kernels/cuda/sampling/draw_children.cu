// Children of rows, in drawn order: each slice of a row yields its largest scores, then those of
// all slices are merged.
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/completion.cuh"
#include "kernels/cuda/sampling/power_sums.cuh"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/cuda/sampling/token_scores.cuh"

namespace coppice::cuda {
namespace {

constexpr int children = drawn_children;
// Fewer than `children` threads are above the threshold, or exactly as many.
constexpr int most_candidates = children * tokens_per_thread;
constexpr int most_slices = static_cast<int>((most_vocab + slice_tokens - 1) / slice_tokens);
constexpr int merge_threads = 512;
constexpr int slice_warps = slice_threads / warp_size;
// A score's 32 bits, then the place in the slice.
constexpr int slice_bits = 13;
static_assert(1 << slice_bits == slice_tokens);

/// Explicitly rounded, as all that is summed over a row.
__device__ float squares_of(const Quad& quad) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 4; ++j) sum = __fmaf_rn(quad.at[j], quad.at[j], sum);
  return sum;
}

/// kFaulty: with the setting's planted fault.
template <bool kFaulty>
__device__ NoiseAddress noise_of_row(const SamplingSetting& setting, const DrawInput& input) {
  StepKey key = setting.key;
  if (setting.rule == AcceptanceRule::coupled) return coupled_noise(key, input.depth);
  std::uint64_t node_key = input.node_key;
  if (kFaulty && setting.fault == DeviceFault::same_depth_shares_noise) {
    node_key = static_cast<std::uint64_t>(input.depth);
  } else if (kFaulty && setting.fault == DeviceFault::retry_shares_noise) {
    key.step = 0;
    node_key = key.noise_position(static_cast<std::uint64_t>(input.depth));
  }
  return sampled_noise(key, node_key);
}

/// The largest value that at least `children` threads' `best` reach, or 1 where no more threads
/// than that have anything: then at most `children` threads reach it, since places differ.
__device__ std::uint64_t threshold_of(std::uint64_t best) {
  if (__syncthreads_count(best > 0) <= children) return 1;
  std::uint64_t threshold = 0;
  for (int bit = 32 + slice_bits - 1; bit >= 0; --bit) {
    const std::uint64_t tried = threshold | (std::uint64_t{1} << bit);
    const int reach = __syncthreads_count(best >= tried);
    if (reach >= children) threshold = tried;
    if (reach == children) break;
  }
  return threshold;
}

template <bool kFaulty>
__global__ void __launch_bounds__(slice_threads)
    draw_slices_kernel(DrawView draw, StoreView store, SliceView slices) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ std::uint64_t candidates[most_candidates];
  __shared__ int candidate_count;
  __shared__ RowSums warp_sums[slice_warps];
  const auto row_index = static_cast<std::int32_t>(blockIdx.y);
  if (row_index >= draw.head->rows) return;
  const DrawInput input = draw.rows[row_index];
  const SamplingSetting& setting = draw.settings[input.text];
  const RowStatistics statistics = store.statistics[input.store];
  const Row row(store.logits + input.store * store.stride, store.vocab);
  const bool noisy = setting.rule != AcceptanceRule::greedy;
  const bool sampled = setting.rule == AcceptanceRule::rejection;
  const float belief_inverse_temperature = setting.belief_inverse_temperature;
  const NoiseAddress noise = noise_of_row<kFaulty>(setting, input);
  const bool top_two_only =
      kFaulty && setting.fault == DeviceFault::declared_is_not_sampled && store.vocab > 2;

  float score[tokens_per_thread], squares = 0.0f;
  const int thread = static_cast<int>(threadIdx.x);
  const auto slice = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t first_group = slice * (slice_tokens / 4) + thread;
#pragma unroll
  for (int i = 0; i < groups_per_thread; ++i) {
    const std::int32_t group = first_group + i * slice_threads;
    Quad quad = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (group < row.groups()) {
      quad = row.probabilities(statistics, group);
      if (sampled) squares = __fadd_rn(squares, squares_of(quad));
      if (noisy) quad = with_noise(quad, noise, group);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) score[4 * i + j] = quad.at[j];
  }
  // Sums are the whole row's: they come before what has been listed is left out.
  if (belief_inverse_temperature > 0.0f) {
    const PowerSums sums = warp_power_sums(score, belief_inverse_temperature);
    if (lane_id() == 0) warp_sums[warp_id()].scores = sums;
  }
  if (sampled) {
    squares = warp_reduce(squares, SumOf());
    if (lane_id() == 0) warp_sums[warp_id()].squares = squares;
  }
  if (input.after >= 0 || top_two_only) {
    std::uint64_t last = 0;
    if (input.after >= 0) {
      last = placed(token_score(row, statistics, noise, noisy, input.after), input.after);
    }
#pragma unroll
    for (int k = 0; k < tokens_per_thread; ++k) {
      const std::int32_t token = 4 * (first_group + k / 4 * slice_threads) + k % 4;
      const bool too_early = input.after >= 0 && placed(score[k], token) >= last;
      const bool excluded =
          top_two_only && token != statistics.argmax && token != statistics.second;
      if (too_early || excluded) score[k] = 0.0f;
    }
  }

  // Within the slice, places need fewer bits.
  const auto slice_place = [&](int k) -> std::uint64_t {
    const int local = 4 * (thread + k / 4 * slice_threads) + k % 4;
    if (!(score[k] > 0.0f)) return 0;
    return (std::uint64_t{__float_as_uint(score[k])} << slice_bits) |
           static_cast<std::uint64_t>(slice_tokens - 1 - local);
  };
  std::uint64_t best = 0;
#pragma unroll
  for (int k = 0; k < tokens_per_thread; ++k) {
    const std::uint64_t place = slice_place(k);
    best = place > best ? place : best;
  }
  if (thread == 0) candidate_count = 0;
  // (Its barriers also show the count and the warps' sums.)
  const std::uint64_t threshold = threshold_of(best);
  if (best >= threshold) {
#pragma unroll
    for (int k = 0; k < tokens_per_thread; ++k) {
      const std::uint64_t place = slice_place(k);
      if (place >= threshold) candidates[atomicAdd(&candidate_count, 1)] = place;
    }
  }
  __syncthreads();
  const int count = candidate_count;
  const std::int64_t slot = std::int64_t{row_index} * gridDim.x + blockIdx.x;
  // By the warp that has least to do with the candidates.
  if (warp_id() == slice_warps - 1) {
    RowSums sums = {{0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
    const bool has_warp = lane_id() < slice_warps;
    if (belief_inverse_temperature > 0.0f) {
      if (has_warp) sums.scores = warp_sums[lane_id()].scores;
      sums.scores = joined_in_warp(sums.scores, belief_inverse_temperature);
    }
    if (sampled) {
      sums.squares = warp_reduce(has_warp ? warp_sums[lane_id()].squares : 0.0f, SumOf());
    }
    if (kFaulty && setting.fault == DeviceFault::sums_miss_a_slice && slice == 0) {
      sums.scores.sum = sums.squares = 0.0f;
    }
    if (lane_id() == 0) slices.sums[slot] = sums;
  }
  std::uint64_t* const out = slices.best + slot * children;
  if (thread < count) {
    const std::uint64_t place = candidates[thread];
    int rank = 0;
    for (int i = 0; i < count; ++i) rank += candidates[i] > place ? 1 : 0;
    if (rank < children) {
      const std::int32_t local =
          slice_tokens - 1 - static_cast<std::int32_t>(place & (slice_tokens - 1));
      out[rank] = placed(__uint_as_float(static_cast<std::uint32_t>(place >> slice_bits)),
                         slice * slice_tokens + local);
    }
  }
  if (thread < children && thread >= count) out[thread] = 0;
}

/// A slice's places fall from first to last, so that one's rank among all slices is found by
/// binary search in each.
__global__ void __launch_bounds__(merge_threads)
    merge_slices_kernel(DrawView draw, StoreView store, int slices, SliceView parts,
                        DrawnRow* drawn, CompletionView completion) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ std::uint64_t places[most_slices * children];
  __shared__ std::uint64_t merged[children];
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  if (row_index >= draw.head->rows) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int total = slices * children;
  const std::uint64_t* const row_places = parts.best + std::int64_t{row_index} * total;
  for (int i = thread; i < total; i += merge_threads) places[i] = row_places[i];
  if (thread < children) merged[thread] = 0;
  __syncthreads();
  for (int i = thread; i < total; i += merge_threads) {
    const std::uint64_t place = places[i];
    if (place == 0) continue;
    int rank = 0;
    for (int slice = 0; slice < slices && rank < children; ++slice) {
      const std::uint64_t* const list = places + slice * children;
      int larger = 0;  // entries known to be larger
      for (int step = children / 2; step > 0; step /= 2) {
        if (list[larger + step - 1] > place) larger += step;
      }
      if (list[larger] > place) ++larger;
      rank += larger;
    }
    if (rank < children) merged[rank] = place;
  }
  __syncthreads();
  if (thread >= children) return;
  const DrawInput input = draw.rows[row_index];
  const std::int32_t store_row = input.store;
  const RowStatistics statistics = store.statistics[store_row];
  DeviceChild child;
  if (merged[thread] != 0) {
    child.token = placed_token(merged[thread]);
    child.prob =
        probability(statistics, store.logits[store_row * store.stride + child.token], child.token);
  }
  drawn[row_index].children[thread] = child;
  const SamplingSetting& setting = draw.settings[input.text];
  const float belief_inverse_temperature = setting.belief_inverse_temperature;
  const RowSums* const row_sums = parts.sums + std::int64_t{row_index} * slices;
  if (belief_inverse_temperature > 0.0f) {
    PowerSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int slice = thread; slice < slices; slice += warp_size) {
      sums = joined(sums, row_sums[slice].scores, belief_inverse_temperature);
    }
    sums = joined_in_warp(sums, belief_inverse_temperature);
    drawn[row_index].scores[thread] =
        __uint_as_float(static_cast<std::uint32_t>(merged[thread] >> 32));
    if (thread == 0) drawn[row_index].sums.scores = sums;
  }
  if (setting.rule == AcceptanceRule::rejection) {
    float squares = 0.0f;
    for (int slice = thread; slice < slices; slice += warp_size) {
      squares = __fadd_rn(squares, row_sums[slice].squares);
    }
    squares = warp_reduce(squares, SumOf());
    if (thread == 0) drawn[row_index].sums.squares = squares;
  }
  if (thread == 0) drawn[row_index].argmax = statistics.argmax;
  // A warp has all children: what its lanes wrote to the host's memory is there before the mark.
  static_assert(children == 32);
  __threadfence_system();
  __syncwarp();
  if (thread == 0 && is_last(completion.finished, static_cast<std::uint32_t>(draw.head->rows))) {
    tell_host(completion.mark, draw.head->number);
  }
}

__global__ void score_token_kernel(DrawView draw, StoreView store, DrawnRow* drawn,
                                   CompletionView completion) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const SamplingSetting& setting = *draw.settings;
  const DrawInput input = draw.rows[0];
  const Row row(store.logits + input.store * store.stride, store.vocab);
  drawn->scores[0] =
      token_score(row, store.statistics[input.store], noise_of_row<false>(setting, input),
                  setting.rule != AcceptanceRule::greedy, input.after);
  tell_host(completion.mark, draw.head->number);
}

}  // namespace

void draw_children(const DrawView& draw, const StoreView& store, const SliceView& parts,
                   DrawnRow* drawn, const CompletionView& completion, std::int32_t rows,
                   bool faulty, cudaStream_t stream) {
  const std::int32_t slices = slices_of(store.vocab);
  const dim3 grid(static_cast<unsigned>(slices), static_cast<unsigned>(rows));
  const auto draw_slices = faulty ? draw_slices_kernel<true> : draw_slices_kernel<false>;
  launch_early(draw_slices, grid, slice_threads, 0, stream, draw, store, parts);
  check_launch("draw_slices");
  launch_early(merge_slices_kernel, dim3(static_cast<unsigned>(rows)), merge_threads, 0, stream,
               draw, store, slices, parts, drawn, completion);
  check_launch("merge_slices");
}

void score_token(const DrawView& draw, const StoreView& store, DrawnRow* drawn,
                 const CompletionView& completion, cudaStream_t stream) {
  launch_early(score_token_kernel, dim3(1), 1, 0, stream, draw, store, drawn, completion);
  check_launch("score_token");
}

}  // namespace coppice::cuda
