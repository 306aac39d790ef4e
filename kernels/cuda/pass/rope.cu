#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/pass/rope.cuh"

namespace coppice::cuda {
namespace {

/// Blocks (rows, heads / heads of a block): a thread takes N pairs of one head, a block whole
/// heads.
template <int N>
__global__ void rope_write_kv_kernel(const RopeTensors tensors) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int32_t per_head = tensors.head_dim / 2 / N;
  const auto item = static_cast<std::int32_t>(blockIdx.y * blockDim.x + threadIdx.x);
  const std::int32_t head = item / per_head;
  const bool real = head < all_heads(tensors);
  const std::int32_t i = item % per_head * N;
  const std::int64_t row = blockIdx.x;
  Vector<float, N> low{}, high{};
  if (real) {
    const float* x = head_in_qkv(tensors, row, head);
    const Pair at = pair_of(tensors, i);
    low = load<N>(x + at.low);
    high = load<N>(x + at.high);
  }
  __syncthreads();
  if (!real) return;
  rotate_and_write<N>(tensors, row, head, i, low, high, turn_of<N>(tensors, row, head, i));
}

constexpr int head_warps = 4;
/// Heads of up to 512 elements, one pair of a lane at a time.
constexpr int most_head_steps = 8;

/// Blocks (rows, heads / head_warps): a warp takes one head, a lane N pairs of it in each step.
template <int N, int steps>
__global__ void norm_rope_write_kv_kernel(const RopeTensors tensors) {
  let_next_kernel_begin();
  const std::int32_t head =
      static_cast<std::int32_t>(blockIdx.y) * head_warps + static_cast<std::int32_t>(warp_id());
  if (head >= all_heads(tensors)) return;
  wait_for_former_kernels();
  const std::int32_t pairs = tensors.head_dim / 2;
  const std::int64_t row = blockIdx.x;
  const float* x = head_in_qkv(tensors, row, head);
  const float* weight = head < tensors.heads                      ? tensors.norms.query
                        : head < tensors.heads + tensors.kv_heads ? tensors.norms.key
                                                                  : nullptr;
  const auto pair_in = [](int step) { return (step * warp_size + lane_id()) * N; };
  Vector<float, N> low[steps] = {}, high[steps] = {};
  float sum = 0.0f;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const std::int32_t i = pair_in(step);
    if (i >= pairs) break;
    const Pair at = pair_of(tensors, i);
    low[step] = load<N>(x + at.low);
    high[step] = load<N>(x + at.high);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sum += low[step].at[k] * low[step].at[k] + high[step].at[k] * high[step].at[k];
    }
  }
  sum = warp_reduce(sum, SumOf());
  __syncwarp();  // a query goes where other lanes have read
  const float factor =
      1.0f / sqrtf(sum / static_cast<float>(tensors.head_dim) + tensors.norms.epsilon);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const std::int32_t i = pair_in(step);
    if (i >= pairs) break;
    if (weight != nullptr) {
      const Pair at = pair_of(tensors, i);
      const Vector<float, N> low_scales = load<N>(weight + at.low);
      const Vector<float, N> high_scales = load<N>(weight + at.high);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        low[step].at[k] = low[step].at[k] * factor * low_scales.at[k];
        high[step].at[k] = high[step].at[k] * factor * high_scales.at[k];
      }
    }
    rotate_and_write<N>(tensors, row, head, i, low[step], high[step],
                        turn_of<N>(tensors, row, head, i));
  }
}

template <int N>
void launch_rope(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  const std::int32_t per_head = tensors.head_dim / 2 / N;
  const std::int32_t heads = std::max(column_threads / per_head, 1);
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((all_heads(tensors) + heads - 1) / heads));
  launch_early(rope_write_kv_kernel<N>, grid, heads * per_head, 0, stream, tensors);
  check_launch("rope_write_kv");
}

template <int N, int steps>
void launch_steps(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((all_heads(tensors) + head_warps - 1) / head_warps));
  launch_early(norm_rope_write_kv_kernel<N, steps>, grid, head_warps * warp_size, 0, stream,
               tensors);
  check_launch("rope_write_kv with norms");
}
template <int N>
void launch_with_norms(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  const bool one = tensors.head_dim <= 2 * warp_size * N;
  (one ? launch_steps<N, 1> : launch_steps<N, most_head_steps>)(tensors, rows, stream);
}

}  // namespace

RopeTensors rope_tensors(const PassView& pass, float* qkv, const QkvOutput& to) {
  const KvLayout& layout = to.layout;
  const std::int64_t layer_start =
      std::int64_t{to.layer} * layout.pages * layout.kv_heads * layout.page_size * layout.head_dim;
  return {pass.positions,
          pass.write_slots,
          qkv,
          to.rope->cosine.as<float>(),
          to.rope->sine.as<float>(),
          static_cast<__nv_bfloat16*>(to.keys) + layer_start,
          static_cast<__nv_bfloat16*>(to.values) + layer_start,
          to.heads,
          layout.kv_heads,
          layout.head_dim,
          to.rope->half_dim,
          layout.page_size,
          to.norms};
}

void rope_write_kv(const PassView& pass, float* qkv, const QkvOutput& to, std::int32_t rows,
                   cudaStream_t stream) {
  if (rows == 0) return;
  rope_write_kv(rope_tensors(pass, qkv, to), rows, stream);
}

void rope_write_kv(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  if (tensors.head_dim > 2 * warp_size * most_head_steps) {
    throw_usage(cat("rope_write_kv: heads of ", tensors.head_dim, " elements, more than ",
                    2 * warp_size * most_head_steps));
  }
  const HeadNorms& norms = tensors.norms;
  const bool aligned =
      takes_vectors(tensors.qkv, sizeof(float)) && takes_vectors(tensors.cosine, sizeof(float)) &&
      takes_vectors(tensors.sine, sizeof(float)) &&
      takes_vectors(tensors.keys, sizeof(__nv_bfloat16)) &&
      takes_vectors(tensors.values, sizeof(__nv_bfloat16)) &&
      takes_vectors(norms.query, sizeof(float)) && takes_vectors(norms.key, sizeof(float));
  // Both kinds of pairs in vectors.
  const auto takes = [&](std::int32_t width) {
    return tensors.half_dim % width == 0 && tensors.head_dim / 2 % width == 0 && aligned;
  };
  if (norms.query == nullptr && norms.key == nullptr) {
    const auto launch_width = takes(vector_width) ? launch_rope<vector_width> : launch_rope<1>;
    return launch_width(tensors, rows, stream);
  }
  // Wide enough that few lanes idle.
  const auto launch_width = takes(4) && tensors.head_dim > 128  ? launch_with_norms<4>
                            : takes(2) && tensors.head_dim > 64 ? launch_with_norms<2>
                                                                : launch_with_norms<1>;
  launch_width(tensors, rows, stream);
}

}  // namespace coppice::cuda
