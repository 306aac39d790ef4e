// A row of logits and the distribution it stands for. probability() is the one definition by
// which tokens are drawn, declared, scored and judged; its operations are rounded explicitly, so
// that it yields the same bits wherever it is inlined.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/sampling/sampling.h"

namespace coppice::cuda {

inline constexpr std::int32_t no_token = INT32_MAX;

__device__ inline float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

/// NaN to minus infinity, plus infinity to the largest finite number.
__device__ inline float cleaned(float x) { return isnan(x) ? minus_infinity() : fminf(x, FLT_MAX); }

/// Penalises a cleaned logit.
__device__ inline float penalised(float x, float penalty) {
  return x > 0.0f ? __fdiv_rn(x, penalty) : __fmul_rn(x, penalty);
}

/// Orders floats as unsigned integers; the two zeros are one.
__device__ inline std::uint32_t order_key(float x) {
  const std::uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float logit_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/// How many temperatures a logit lies below the largest, negated.
__device__ inline float scaled_logit(float max, float inverse_temperature, float x) {
  return __fmul_rn(__fsub_rn(x, max), inverse_temperature);
}

__device__ inline float weight_of(float max, float inverse_temperature, float x) {
  return expf(scaled_logit(max, inverse_temperature, x));
}

/// Whether (key, token) comes no later than the cut by falling key and rising id.
__device__ inline bool before_cut(std::uint32_t key, std::int32_t token, std::uint32_t cut_key,
                                  std::int32_t cut_id) {
  return key > cut_key || (key == cut_key && token <= cut_id);
}

/// Returns the probability of a token with cleaned logit x; 0 where filters removed it.
__device__ inline float probability(const RowStatistics& row, float x, std::int32_t token) {
  if (!before_cut(order_key(x), token, row.cut_key, row.cut_id)) return 0.0f;
  const float weight = weight_of(row.max, row.inverse_temperature, x);
  return weight < row.least_weight ? 0.0f : __fmul_rn(weight, row.inverse_sum);
}

/// Values of tokens 4 g to 4 g + 3.
struct Quad {
  float at[4];
};

/// Logits of tokens [0, width). A thread always takes whole groups of four tokens, whatever the
/// row's alignment, so that sums do not depend on where a row lies.
struct Row {
  const float* logits;
  std::int32_t width;
  bool aligned;

  __device__ Row(const float* row_logits, std::int32_t row_width)
      : logits(row_logits),
        width(row_width),
        aligned((reinterpret_cast<std::uintptr_t>(row_logits) & 15) == 0) {}

  __device__ std::int32_t groups() const { return (width + 3) / 4; }

  /// Minus infinity beyond the row's end.
  __device__ Quad raw(std::int32_t group) const {
    const std::int32_t first = 4 * group;
    if (aligned && first + 4 <= width) {
      const float4 v = *reinterpret_cast<const float4*>(logits + first);
      return {{v.x, v.y, v.z, v.w}};
    }
    Quad quad;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      quad.at[j] = first + j < width ? logits[first + j] : minus_infinity();
    }
    return quad;
  }

  __device__ Quad clean(std::int32_t group) const {
    Quad quad = raw(group);
#pragma unroll
    for (int j = 0; j < 4; ++j) quad.at[j] = cleaned(quad.at[j]);
    return quad;
  }

  __device__ Quad probabilities(const RowStatistics& statistics, std::int32_t group) const {
    Quad quad = clean(group);
#pragma unroll
    for (int j = 0; j < 4; ++j) quad.at[j] = probability(statistics, quad.at[j], 4 * group + j);
    return quad;
  }
};

}  // namespace coppice::cuda
