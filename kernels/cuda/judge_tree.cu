// Judging a tree by its target rows. What follows a node depends on the node's own T and D and
// on numbers keyed by the node, not on how it was reached: so all rows are judged at once, as if
// each were reached, and the block that finishes last walks the tree along what they found.
#include "kernels/cuda/completion.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/residual.cuh"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/token_scores.cuh"

namespace coppice::cuda {
namespace {

// verify/rejection.cc: residual mass of this size or less is rounding.
constexpr double no_mass = 1e-12;

__global__ void __launch_bounds__(slice_threads)
    couple_slices_kernel(JudgeView judge, TargetView target) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ WarpValues<std::uint64_t> scratch;
  const SamplingSetting& setting = *judge.setting;
  const auto row_index = static_cast<std::int32_t>(blockIdx.y);
  if (row_index >= setting.rows || setting.noise != DeviceNoise::coupled) return;
  const RowStatistics statistics = target.statistics[row_index];
  const Row row(target.logits + std::int64_t{row_index} * target.vocab, target.vocab);
  const NoiseAddress noise = coupled_noise(setting.key, judge.rows[row_index].depth);
  const std::int32_t first_group = static_cast<std::int32_t>(blockIdx.x) * (slice_tokens / 4) +
                                   static_cast<std::int32_t>(threadIdx.x);
  std::uint64_t best = 0;
#pragma unroll 1
  for (int i = 0; i < groups_per_thread; ++i) {
    const std::int32_t group = first_group + i * slice_threads;
    if (group >= row.groups()) break;
    const Quad scores = group_scores(row, statistics, noise, true, group);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint64_t place = placed(scores.at[j], 4 * group + j);
      best = place > best ? place : best;
    }
  }
  best = block_reduce(best, LargerOf(), std::uint64_t{0}, scratch);
  if (threadIdx.x == 0) {
    target.slice_best[std::int64_t{row_index} * gridDim.x + blockIdx.x] = best;
  }
}

/// One row's part of the judging; all threads of the block hold the same values.
struct Judgement {
  const SamplingSetting& setting;
  const JudgeView& judge;
  const JudgeInput input;
  ResidualSpace& space;

  /// The child with this token, or the token itself as bonus.
  __device__ RowOutcome follow(TokenId token) const {
    __syncthreads();  // whoever read the space before has done so
    if (threadIdx.x == 0) space.cell = -1;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < input.children; i += residual_threads) {
      // Siblings have distinct tokens: one thread at most writes.
      if (judge.child_token[input.first_child + i] == token) {
        space.cell = judge.child_row[input.first_child + i];
      }
    }
    __syncthreads();
    const std::int32_t child = space.cell;
    return {child, child < 0 ? token : -1};
  }

  /// Recursive rejection: verify/rejection.cc, which holds the reasons.
  __device__ RowOutcome reject(const NodeRows& rows) const {
    const std::int32_t groups = rows.target.groups();
    const double residual_uniform =
        uniform_at(RandomStream::residual, setting.key, input.node_key, 0);
    double scale = 0.0;          // c
    double residual_left = 1.0;  // Z
    double draft_total = 1.0;    // D's own sum; looked at once a child has been rejected
    double draft_drawn = 0.0;    // s
    for (std::int32_t rank = 0; rank < input.children; ++rank) {
      const std::int32_t token = judge.child_token[input.first_child + rank];
      const auto target_prob = static_cast<double>(
          probability(rows.target_statistics, cleaned(rows.target.logits[token]), token));
      const auto draft_prob = static_cast<double>(
          token < rows.draft.width
              ? probability(rows.draft_statistics, cleaned(rows.draft.logits[token]), token)
              : 0.0f);
      const double difference = __fma_rn(-scale, draft_prob, target_prob);
      double residual = difference > 0.0 ? difference : 0.0;
      const bool keeps_mass = setting.fault == DeviceFault::draft_mass_not_renormalised;
      const double rest = keeps_mass ? draft_total : __dsub_rn(draft_total, draft_drawn);
      const double draft_left = rest > draft_prob ? rest : draft_prob;
      const bool shared = setting.fault == DeviceFault::siblings_share_uniform;
      const double u = uniform_at(RandomStream::accept, setting.key, input.node_key,
                                  shared ? 0 : static_cast<std::uint64_t>(rank));
      // u > 0, so that a ratio of 0 never accepts.
      const bool accepted = setting.fault == DeviceFault::accept_without_residual
                                ? __dmul_rn(u, draft_prob) < target_prob
                                : __dmul_rn(__dmul_rn(u, residual_left), draft_prob) <
                                      __dmul_rn(residual, draft_left);
      if (accepted) return {judge.child_row[input.first_child + rank], -1};
      scale = __dadd_rn(scale, __ddiv_rn(residual_left, draft_left));
      draft_drawn = __dadd_rn(draft_drawn, draft_prob);
      if (rank == 0) {
        const ResidualMasses masses = residual_masses<true>(space, rows, scale);
        residual_left = masses.residual;
        draft_total = masses.draft;
      } else {
        residual_left = residual_masses<false>(space, rows, scale).residual;
      }
      if (residual_left <= no_mass) break;
    }
    const auto target_weights = [&](std::int32_t group) { return rows.target_probs(group); };
    TokenId bonus = -1;
    const bool residual_wanted = scale > 0.0 && setting.fault != DeviceFault::residual_is_target;
    if (residual_wanted && residual_left > no_mass) {
      const ResidualScale c(scale);
      const bool exponential = setting.fault == DeviceFault::target_softmax_of_residual;
      const float inverse_mass = __double2float_rn(__ddiv_rn(1.0, residual_left));
      bonus = inverse_cdf(space, groups, residual_uniform, [&](std::int32_t group) {
        const Quad t = rows.target_probs(group);
        Quad weights = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (!exponential && !any_of(t)) return weights;
        const Quad d = rows.draft_probs(group);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          weights.at[j] = c.weight(t.at[j], d.at[j]);
          if (exponential && 4 * group + j < rows.target.width) {
            weights.at[j] = expf(__fmul_rn(weights.at[j], inverse_mass));
          }
        }
        return weights;
      });
    }
    // Without a residual: no child, or T is D but for rounding.
    if (bonus < 0) bonus = inverse_cdf(space, groups, residual_uniform, target_weights);
    return {-1, bonus};
  }
};

__device__ RowOutcome outcome_of(const JudgeView& judge, const TargetView& target,
                                 const StoreView& store, ResidualSpace& space,
                                 std::int32_t row_index, int slices) {
  const SamplingSetting& setting = *judge.setting;
  const RowStatistics statistics = target.statistics[row_index];
  if (statistics.argmax < 0) return {-1, no_distribution};
  const Judgement row{setting, judge, judge.rows[row_index], space};
  if (setting.noise == DeviceNoise::sampled) {
    // Without children D is not looked at; any row of the store then stands for it.
    const std::int64_t store_row = row.input.store < 0 ? 0 : row.input.store;
    const float* const draft_logits = store.logits + store_row * store.stride;
    const NodeRows rows{Row(target.logits + std::int64_t{row_index} * target.vocab, target.vocab),
                        statistics, Row(draft_logits, row.input.store < 0 ? 0 : store.vocab),
                        row.input.store < 0 ? RowStatistics() : store.statistics[store_row]};
    return row.reject(rows);
  }
  TokenId token = statistics.argmax;
  if (setting.noise == DeviceNoise::coupled) {
    std::uint64_t best = 0;
    for (int i = 0; i < slices; ++i) {
      const std::uint64_t place = target.slice_best[std::int64_t{row_index} * slices + i];
      best = place > best ? place : best;
    }
    if (best != 0) token = placed_token(best);
  }
  return row.follow(token);
}

/// From the root along the outcomes.
__device__ void walk(const RowOutcome* outcomes, std::int32_t rows, std::int32_t* verdict) {
  std::int32_t node = 0, accepted = 0;
  TokenId bonus = -1;
  while (accepted < rows) {
    const std::int32_t child = __ldcg(&outcomes[node].child);
    if (child < 0) {
      bonus = __ldcg(&outcomes[node].bonus);
      break;
    }
    verdict[2 + accepted++] = child;
    node = child;
  }
  verdict[0] = bonus;
  verdict[1] = accepted;
}

__global__ void __launch_bounds__(residual_threads)
    judge_rows_kernel(JudgeView judge, TargetView target, StoreView store, VerdictView out,
                      int slices) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ ResidualSpace space;
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t rows = judge.setting->rows;
  if (row_index >= rows) return;
  const RowOutcome outcome = outcome_of(judge, target, store, space, row_index, slices);
  if (threadIdx.x != 0) return;
  out.outcomes[row_index] = outcome;
  if (!is_last(out.completion.finished, static_cast<std::uint32_t>(rows))) return;
  // Read in the L2 cache, where the writes are: no line of this multiprocessor can be stale.
  walk(out.outcomes, rows, out.verdict);
  tell_host(out.completion.mark, judge.setting->number);
}

}  // namespace

void couple_target_rows(const JudgeView& judge, const TargetView& target, std::int32_t rows,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(slices_of(target.vocab)), static_cast<unsigned>(rows));
  launch_early(couple_slices_kernel, grid, slice_threads, 0, stream, judge, target);
  check_launch("couple_slices");
}

void judge_tree(const JudgeView& judge, const TargetView& target, const StoreView& store,
                const VerdictView& verdict, std::int32_t rows, cudaStream_t stream) {
  launch_early(judge_rows_kernel, dim3(static_cast<unsigned>(rows)), residual_threads, 0, stream,
               judge, target, store, verdict, slices_of(target.vocab));
  check_launch("judge_rows");
}

}  // namespace coppice::cuda
