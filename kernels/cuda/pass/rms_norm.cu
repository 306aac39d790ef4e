#include <algorithm>

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

constexpr int most_threads = 1024;
constexpr int most_kept = 2;  ///< vectors of a row that a thread keeps in registers

template <int N>
__device__ void put(const Vector<float, N>& values, __nv_bfloat16* to) {
  store(rounded(values), to);
}
template <int N>
__device__ void put(Vector<float, N> values, float* to) {
  const Vector<float, N> former = load<N>(to);
#pragma unroll
  for (int k = 0; k < N; ++k) values.at[k] = __fadd_rn(former.at[k], values.at[k]);
  store(values, to);
}
/// Products are rounded one by one: the same bits in every kernel.
template <int N>
__device__ void scale_by(Vector<float, N>& values, float factor, const Vector<float, N>& scales) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    values.at[k] = __fmul_rn(__fmul_rn(values.at[k], factor), scales.at[k]);
  }
}

template <int N>
__device__ void add_squares(const Vector<float, N>& values, float& sum) {
#pragma unroll
  for (int k = 0; k < N; ++k) sum = __fmaf_rn(values.at[k], values.at[k], sum);
}
/// From the threads' sums of squares. Every warp adds the warps' sums for itself, which saves a
/// second barrier; `warp_sums` [warp_size] may not be used again.
__device__ float norm_factor(float sum, float epsilon, std::int64_t hidden, float* warp_sums) {
  sum = warp_reduce(sum, SumOf());
  if (lane_id() == 0) warp_sums[warp_id()] = sum;
  __syncthreads();
  sum = warp_reduce(lane_id() < block_warps() ? warp_sums[lane_id()] : 0.0f, SumOf());
  return 1.0f / sqrtf(sum / static_cast<float>(hidden) + epsilon);
}

/// Where results go. What is read and added to may not be promised to be reached by no other way
/// (kernel_order.cuh).
template <typename Out>
struct Destination {
  using Pointer = Out*;
};
template <>
struct Destination<__nv_bfloat16> {
  using Pointer = __nv_bfloat16* __restrict__;
};

/// A block per row, of whole warps, at most warp_size of them. A multiprocessor has room for two
/// blocks whose threads keep one vector each. Results are rounded to bf16, or added to f32.
template <int N, int kept, typename Out>
__global__ void __launch_bounds__(most_threads, kept == 1 ? 2 : 1)
    rms_norm_kernel(const float* x, const float* weight, float epsilon, std::int64_t hidden,
                    typename Destination<Out>::Pointer out) {
  let_next_kernel_begin();
  __shared__ float warp_sums[warp_size];
  const std::int64_t first = std::int64_t{threadIdx.x} * N;
  const std::int64_t step = std::int64_t{blockDim.x} * N;
  const std::int64_t row = std::int64_t{blockIdx.x} * hidden;
  // Weights, which no kernel writes, are on their way while former kernels end.
  Vector<float, N> scales[kept], values[kept];
#pragma unroll
  for (int j = 0; j < kept; ++j) {
    if (first + j * step < hidden) scales[j] = load<N>(weight + first + j * step);
  }
  wait_for_former_kernels();
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kept; ++j) {
    const std::int64_t i = first + j * step;
    if (i >= hidden) break;
    values[j] = load<N>(x + row + i);
    add_squares(values[j], sum);
  }
  for (std::int64_t i = first + kept * step; i < hidden; i += step) {
    add_squares(load<N>(x + row + i), sum);
  }
  const float factor = norm_factor(sum, epsilon, hidden, warp_sums);
  const auto write = [&](std::int64_t i, Vector<float, N> of, const Vector<float, N>& scale) {
    scale_by(of, factor, scale);
    put(of, out + row + i);
  };
#pragma unroll
  for (int j = 0; j < kept; ++j) {
    if (first + j * step < hidden) write(first + j * step, values[j], scales[j]);
  }
  for (std::int64_t i = first + kept * step; i < hidden; i += step) {
    write(i, load<N>(x + row + i), load<N>(weight + i));
  }
}

/// Likewise, a row's vectors all kept.
template <int N>
__global__ void __launch_bounds__(most_threads, 1)
    add_then_norm_kernel(const float* x, const float* weight, const float* next_weight,
                         float epsilon, std::int64_t hidden, float* into, __nv_bfloat16* out) {
  let_next_kernel_begin();
  __shared__ float warp_sums[2][warp_size];
  const std::int64_t first = std::int64_t{threadIdx.x} * N;
  const std::int64_t step = std::int64_t{blockDim.x} * N;
  const std::int64_t row = std::int64_t{blockIdx.x} * hidden;
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int j = 0; j < most_kept; ++j) {
      if (first + j * step < hidden) body(j, first + j * step);
    }
  };
  Vector<float, N> scales[most_kept], next_scales[most_kept], values[most_kept];
  each([&](int j, std::int64_t i) {
    scales[j] = load<N>(weight + i);
    next_scales[j] = load<N>(next_weight + i);
  });
  wait_for_former_kernels();
  Vector<float, N> formers[most_kept];
  float sum = 0.0f, next_sum = 0.0f;
  each([&](int j, std::int64_t i) {
    values[j] = load<N>(x + row + i);
    formers[j] = load<N>(into + row + i);
    add_squares(values[j], sum);
  });
  const float factor = norm_factor(sum, epsilon, hidden, warp_sums[0]);
  each([&](int j, std::int64_t i) {
    scale_by(values[j], factor, scales[j]);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[j].at[k] = __fadd_rn(formers[j].at[k], values[j].at[k]);
    }
    store(values[j], into + row + i);
    add_squares(values[j], next_sum);
  });
  const float next_factor = norm_factor(next_sum, epsilon, hidden, warp_sums[1]);
  each([&](int j, std::int64_t i) {
    scale_by(values[j], next_factor, next_scales[j]);
    store(rounded(values[j]), out + row + i);
  });
}

unsigned threads_for(std::int64_t hidden, int width) {
  const std::int64_t warps = (hidden + width * warp_size - 1) / (width * warp_size);
  return static_cast<unsigned>(std::min<std::int64_t>(warps * warp_size, most_threads));
}

template <int N, typename Out>
void launch_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                 std::int64_t hidden, Out* out, cudaStream_t stream) {
  const unsigned threads = threads_for(hidden, N);
  // With fewer rows than multiprocessors, two blocks on one only take room from the next kernel.
  const bool share = rows > 128 && hidden <= std::int64_t{threads} * N;
  launch_early(share ? rms_norm_kernel<N, 1, Out> : rms_norm_kernel<N, most_kept, Out>,
               dim3(static_cast<unsigned>(rows)), threads, 0, stream, x, weight, epsilon, hidden,
               out);
  check_launch("rms_norm");
}

template <typename Out>
void launch_width(const float* x, const float* weight, float epsilon, std::int32_t rows,
                  std::int64_t hidden, Out* out, cudaStream_t stream) {
  if (rows == 0) return;
  const bool vectors = hidden % vector_width == 0 && takes_vectors(x, sizeof(float)) &&
                       takes_vectors(weight, sizeof(float)) && takes_vectors(out, sizeof(Out));
  const auto launch_rows = vectors ? launch_norm<vector_width, Out> : launch_norm<1, Out>;
  launch_rows(x, weight, epsilon, rows, hidden, out, stream);
}

}  // namespace

void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
              std::int64_t hidden, void* out, cudaStream_t stream) {
  launch_width(x, weight, epsilon, rows, hidden, static_cast<__nv_bfloat16*>(out), stream);
}

void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                  std::int64_t hidden, float* into, cudaStream_t stream) {
  launch_width(x, weight, epsilon, rows, hidden, into, stream);
}

void add_rms_norm_then_norm(const float* x, const float* weight, const float* next_weight,
                            float epsilon, std::int32_t rows, std::int64_t hidden, float* into,
                            void* out, cudaStream_t stream) {
  if (rows == 0) return;
  constexpr int width = vector_width;
  const bool vectors =
      hidden % width == 0 && takes_vectors(x, sizeof(float)) &&
      takes_vectors(weight, sizeof(float)) && takes_vectors(next_weight, sizeof(float)) &&
      takes_vectors(into, sizeof(float)) && takes_vectors(out, sizeof(__nv_bfloat16));
  if (!vectors || hidden > std::int64_t{most_kept} * most_threads * width) {
    add_rms_norm(x, weight, epsilon, rows, hidden, into, stream);
    rms_norm(into, next_weight, epsilon, rows, hidden, out, stream);
    return;
  }
  launch_early(add_then_norm_kernel<width>, dim3(static_cast<unsigned>(rows)),
               threads_for(hidden, width), 0, stream, x, weight, next_weight, epsilon, hidden, into,
               static_cast<__nv_bfloat16*>(out));
  check_launch("add_rms_norm_then_norm");
}

}  // namespace coppice::cuda
