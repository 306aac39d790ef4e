// The residual of recursive rejection at one node, by a block of residual_threads: its mass, and
// the token drawn from it by inverse CDF in token order.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/sampling/row_distribution.cuh"

namespace coppice::cuda {

inline constexpr int residual_threads = 1024;
/// A warp's tokens in one round over the row: the cells of the inverse CDF.
inline constexpr int cell_tokens = 4 * warp_size;
inline constexpr int most_rounds =
    static_cast<int>((most_vocab + 4 * residual_threads - 1) / (4 * residual_threads));
inline constexpr int most_cells = most_rounds * (residual_threads / warp_size);

struct ResidualSpace {
  double cell_mass[most_cells];
  WarpValues<double> sums;
  double base;  ///< mass before the cell found
  std::int32_t cell;
  std::int32_t token;
};

/// c of max(T - c D, 0) as two floats, whose sum is c to 2^-48: T - c D is formed by two fused
/// operations, the first of which rounds but a result that is already near T - c D. So weights
/// are right to a few 2^-24 of themselves, also where T and c D nearly cancel.
struct ResidualScale {
  float high = 0.0f;
  float low = 0.0f;

  __device__ explicit ResidualScale(double scale) {
    // Beyond this, whatever has a D that counts at all is gone; no product may become infinite.
    constexpr double most = 1e30;
    const double bounded = scale < most ? scale : most;
    high = __double2float_rn(bounded);
    low = __double2float_rn(__dsub_rn(bounded, static_cast<double>(high)));
  }

  __device__ float weight(float target_prob, float draft_prob) const {
    const float rest = __fmaf_rn(-low, draft_prob, __fmaf_rn(-high, draft_prob, target_prob));
    return rest > 0.0f ? rest : 0.0f;
  }
};

/// T and D of one node. Beyond D's row (a smaller vocabulary) D is 0.
struct NodeRows {
  Row target;
  RowStatistics target_statistics;
  Row draft;
  RowStatistics draft_statistics;

  __device__ Quad target_probs(std::int32_t group) const {
    return target.probabilities(target_statistics, group);
  }
  __device__ Quad draft_probs(std::int32_t group) const {
    return draft.probabilities(draft_statistics, group);
  }
};

__device__ inline bool any_of(const Quad& quad) {
  return quad.at[0] > 0.0f || quad.at[1] > 0.0f || quad.at[2] > 0.0f || quad.at[3] > 0.0f;
}

struct ResidualMasses {
  double residual;
  double draft;  ///< of D itself; only where asked for
};

template <bool kDraftToo>
__device__ ResidualMasses residual_masses(ResidualSpace& space, const NodeRows& rows,
                                          double scale) {
  const ResidualScale c(scale);
  double residual = 0.0, draft = 0.0;
  const std::int32_t groups = rows.target.groups();
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += residual_threads) {
    const Quad t = rows.target_probs(g);
    if (!kDraftToo && !any_of(t)) continue;
    const Quad d = rows.draft_probs(g);
    const float four = __fadd_rn(__fadd_rn(c.weight(t.at[0], d.at[0]), c.weight(t.at[1], d.at[1])),
                                 __fadd_rn(c.weight(t.at[2], d.at[2]), c.weight(t.at[3], d.at[3])));
    residual = __dadd_rn(residual, static_cast<double>(four));
    if (kDraftToo) {
      const float sum = __fadd_rn(__fadd_rn(d.at[0], d.at[1]), __fadd_rn(d.at[2], d.at[3]));
      draft = __dadd_rn(draft, static_cast<double>(sum));
    }
  }
  ResidualMasses masses;
  masses.residual = block_reduce(residual, SumOf(), 0.0, space.sums);
  masses.draft = kDraftToo ? block_reduce(draft, SumOf(), 0.0, space.sums) : 0.0;
  return masses;
}

/// The first token whose running weight exceeds u times the whole, never one of weight 0; -1
/// where nothing has weight. weights(group) yields four weights, the same at every call. Where
/// rounding carries u past the end of a cell, or of the row, the last token there that has
/// weight is taken.
template <typename Weights>
__device__ std::int32_t inverse_cdf(ResidualSpace& space, std::int32_t groups, double u,
                                    Weights weights) {
  const int thread = static_cast<int>(threadIdx.x);
  const int rounds = (groups + residual_threads - 1) / residual_threads;
  __syncthreads();  // whoever read the space before has done so
  for (int round = 0; round < rounds; ++round) {
    const std::int32_t group = round * residual_threads + thread;
    double mass = 0.0;
    if (group < groups) {
      const Quad w = weights(group);
#pragma unroll
      for (int j = 0; j < 4; ++j) mass = __dadd_rn(mass, static_cast<double>(w.at[j]));
    }
    mass = warp_reduce(mass, SumOf());
    if (lane_id() == 0) space.cell_mass[round * block_warps() + warp_id()] = mass;
  }
  if (thread == 0) space.cell = INT32_MAX;
  __syncthreads();

  // Neighbouring cells to one thread, so that threads' running sums are the row's.
  const int cells = rounds * block_warps();
  const int cells_each = (cells + residual_threads - 1) / residual_threads;
  const int begin = thread * cells_each;
  const int end = begin + cells_each < cells ? begin + cells_each : cells;
  double own = 0.0;
  for (int cell = begin; cell < end; ++cell) own = __dadd_rn(own, space.cell_mass[cell]);
  const RunningSum<double> sum = block_running_sum(own, space.sums);
  if (!(sum.total > 0.0)) return -1;
  double wanted = __dmul_rn(u, sum.total);
  double before = sum.before;
  int found = INT32_MAX;
  for (int cell = begin; cell < end; ++cell) {
    const double upto = __dadd_rn(before, space.cell_mass[cell]);
    if (space.cell_mass[cell] > 0.0 && upto > wanted) {
      found = cell;
      break;
    }
    before = upto;
  }
  if (found != INT32_MAX) atomicMin(&space.cell, found);
  __syncthreads();
  int cell = space.cell;
  if (cell == INT32_MAX) {
    // Rounding: the last cell with weight, to its end.
    __syncthreads();
    if (thread == 0) space.cell = -1;
    __syncthreads();
    for (int i = end - 1; i >= begin; --i) {
      if (space.cell_mass[i] > 0.0) {
        atomicMax(&space.cell, i);
        break;
      }
    }
    __syncthreads();
    cell = space.cell;
    wanted = DBL_MAX;
  }
  if (cell >= begin && cell < end) space.base = before;
  __syncthreads();

  if (warp_id() == 0) {
    const std::int32_t group = cell * warp_size + lane_id();
    Quad w = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (group < groups) w = weights(group);
    double mass = 0.0;
#pragma unroll
    for (int j = 0; j < 4; ++j) mass = __dadd_rn(mass, static_cast<double>(w.at[j]));
    double lower = __shfl_up_sync(all_lanes, warp_running_sum(mass), 1);
    if (lane_id() == 0) lower = 0.0;
    double upto = __dadd_rn(space.base, lower);
    std::int32_t hit = -1, last = -1;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      upto = __dadd_rn(upto, static_cast<double>(w.at[j]));
      if (!(w.at[j] > 0.0f)) continue;
      last = 4 * group + j;
      if (hit < 0 && upto > wanted) hit = last;
    }
    const unsigned hits = __ballot_sync(all_lanes, hit >= 0);
    const unsigned lasts = __ballot_sync(all_lanes, last >= 0);
    const int lane = hits != 0 ? __ffs(static_cast<int>(hits)) - 1
                               : warp_size - 1 - __clz(static_cast<int>(lasts));
    const std::int32_t token = __shfl_sync(all_lanes, hits != 0 ? hit : last, lane & 31);
    if (lane_id() == 0) space.token = token;
  }
  __syncthreads();
  return space.token;
}

}  // namespace coppice::cuda
