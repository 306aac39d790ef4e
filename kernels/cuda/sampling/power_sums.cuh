// kernels/power_sums.h over the scores that a warp holds. In a fixed order: the same bits every
// time. Every lane calls these.
#pragma once

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/power_sums.h"

namespace coppice::cuda {

/// To all lanes.
__device__ inline PowerSums joined_in_warp(PowerSums own, float power) {
  own = own.relative_to(warp_reduce(own.largest, LargerOf()), power);
  own.sum = warp_reduce(own.sum, SumOf());
  own.first = warp_reduce(own.first, SumOf());
  own.second = warp_reduce(own.second, SumOf());
  return own;
}

/// Sums the lanes' scores, for all lanes. Relative to the warp's largest score there is one
/// logarithm and one exponential for each, by the approximations of the hardware: x is right to
/// about 3e-7 power (1 + |log(score / largest)|), and what is far from 0 hardly weighs.
template <int kCount>
__device__ PowerSums warp_power_sums(const float (&score)[kCount], float power) {
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < kCount; ++k) largest = fmaxf(largest, score[k]);
  largest = warp_reduce(largest, LargerOf());
  PowerSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
  // All lanes, or none. (So small a score has no reciprocal, and no part in any row.)
  if (!(largest >= least_ratio)) return sums;
  sums.largest = largest;
  const float scale = __frcp_rn(largest);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const float ratio = score[k] * scale;
    if (!(ratio >= least_ratio)) continue;
    const float x = power * __logf(ratio);
    const float weight = __expf(x);
    sums.sum += weight;
    sums.first += x * weight;
    sums.second += x * x * weight;
  }
  sums.sum = warp_reduce(sums.sum, SumOf());
  sums.first = warp_reduce(sums.first, SumOf());
  sums.second = warp_reduce(sums.second, SumOf());
  return sums;
}

}  // namespace coppice::cuda
