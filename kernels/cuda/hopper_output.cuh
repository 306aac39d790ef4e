// What becomes of a piece's result: stored where a block has computed a whole unit, else a partial
// result in half precision, every row divided by its largest element, so that rounding adds at most
// 2^-12 of that element.
#pragma once

#include <cuda_fp16.h>

#include <cfloat>

#include "kernels/cuda/hopper_consumer.cuh"

namespace coppice::cuda::hopper {

template <typename V>
class Output {
 public:
  __device__ Output(const Arguments& arguments, const RangePlan& plan)
      : arguments_(arguments), plan_(plan) {}

 protected:
  __device__ void store(const RangePiece& piece, const Consumer<V>& consumer) {
    if (!consumer.holds_result()) return;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t packed_row =
          piece.row_tile * V::tile_rows + consumer.first_row() + 8 * half;
      if (packed_row >= plan_.packed_rows()) continue;
      const float sum = consumer.sum[half];
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
      __nv_bfloat16* out = out_row(piece.kv_head, packed_row) + column;
#pragma unroll
      for (int n = 0; n < V::head_dim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + 8 * n) = flatten::pack(
            consumer.out[4 * n + 2 * half] * inverse, consumer.out[4 * n + 2 * half + 1] * inverse);
      }
    }
  }

  /// What a row of a partial result is stored with; its elements are to be multiplied by `factor`.
  /// To be called by the four threads of a row together.
  __device__ static PartialRow scaled_row(const Consumer<V>& consumer, int half, float& factor) {
    float largest = 0.0f;
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      largest = fmaxf(largest, fmaxf(fabsf(consumer.out[4 * n + 2 * half]),
                                     fabsf(consumer.out[4 * n + 2 * half + 1])));
    }
    const unsigned row_lanes = 0xfu << (threadIdx.x % 32 / 4 * 4);
    largest = fmaxf(largest, __shfl_xor_sync(row_lanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(row_lanes, largest, 2));
    factor = largest < FLT_MIN ? 0.0f : 1.0f / largest;
    const float sum = consumer.sum[half];
    if (sum == 0.0f) return {-INFINITY, 0.0f};
    return {consumer.maximum[half] + __log2f(sum), largest / sum};
  }
  __device__ static std::uint32_t pack_halves(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
  __device__ static float2 unpack_halves(std::uint32_t both) {
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
  }
  __device__ __nv_bfloat16* out_row(std::int32_t kv_head, std::int32_t packed_row) const {
    const auto [query, head] = query_head(arguments_, kv_head, packed_row);
    return arguments_.out +
           (std::int64_t{query} * plan_.kv_heads * plan_.group + head) * V::head_dim;
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
};

}  // namespace coppice::cuda::hopper
