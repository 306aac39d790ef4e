#include <algorithm>

#include "kernels/cuda/convert.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

constexpr unsigned threads = 256;

/// Blocks that keep any GPU busy; each thread takes as many elements as it needs to.
unsigned blocks_for(std::int64_t items) {
  constexpr std::int64_t most_blocks = 4096;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((items + threads - 1) / threads, 1, most_blocks));
}

__device__ std::int64_t first_item() { return std::int64_t{blockIdx.x} * threads + threadIdx.x; }
__device__ std::int64_t item_step() { return std::int64_t{gridDim.x} * threads; }

template <typename T, int N>
__global__ void convert_kernel(const T* from, std::int64_t count, __nv_bfloat16* to) {
  const std::int64_t vectors = count / N;
  for (std::int64_t v = first_item(); v < vectors; v += item_step()) {
    const Vector<T, N> values = load<N>(from + v * N);
    Vector<float, N> wide;
#pragma unroll
    for (int k = 0; k < N; ++k) wide.at[k] = widened(values.at[k]);
    store(rounded(wide), to + v * N);
  }
  for (std::int64_t i = vectors * N + first_item(); i < count; i += item_step()) {
    to[i] = __float2bfloat16_rn(widened(from[i]));
  }
}

template <typename T>
void launch(const void* from, std::int64_t count, void* to, cudaStream_t stream) {
  const T* values = static_cast<const T*>(from);
  auto* out = static_cast<__nv_bfloat16*>(to);
  if (takes_vectors(from, sizeof(T)) && takes_vectors(to, sizeof(__nv_bfloat16))) {
    convert_kernel<T, vector_width>
        <<<blocks_for(count / vector_width), threads, 0, stream>>>(values, count, out);
  } else {
    convert_kernel<T, 1><<<blocks_for(count), threads, 0, stream>>>(values, count, out);
  }
  check_launch("convert_to_bf16");
}

__device__ bool is_non_finite(std::uint16_t bf16) { return (bf16 & 0x7f80u) == 0x7f80u; }

template <int N>
__global__ void find_non_finite_kernel(const std::uint16_t* values, std::int64_t count,
                                       std::int32_t* found) {
  bool seen = false;
  const std::int64_t vectors = count / N;
  for (std::int64_t v = first_item(); v < vectors; v += item_step()) {
    const Vector<std::uint16_t, N> some = load<N>(values + v * N);
#pragma unroll
    for (int k = 0; k < N; ++k) seen |= is_non_finite(some.at[k]);
  }
  for (std::int64_t i = vectors * N + first_item(); i < count; i += item_step()) {
    seen |= is_non_finite(values[i]);
  }
  // Integer and the same from whoever comes: the order does not matter.
  if (seen) atomicExch(found, 1);
}

}  // namespace

void convert_to_bf16(const void* from, DType dtype, std::int64_t count, void* to,
                     cudaStream_t stream) {
  if (count == 0) return;
  switch (dtype) {
    case DType::f32:
      launch<float>(from, count, to, stream);
      return;
    case DType::f16:
      launch<__half>(from, count, to, stream);
      return;
    case DType::bf16:
      check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(__nv_bfloat16),
                            cudaMemcpyDeviceToDevice, stream),
            "copy of bf16 weights");
      return;
  }
}

void find_non_finite(const void* values, std::int64_t count, std::int32_t* found,
                     cudaStream_t stream) {
  if (count == 0) return;
  const auto* bits = static_cast<const std::uint16_t*>(values);
  if (takes_vectors(values, sizeof(std::uint16_t))) {
    find_non_finite_kernel<vector_width>
        <<<blocks_for(count / vector_width), threads, 0, stream>>>(bits, count, found);
  } else {
    find_non_finite_kernel<1><<<blocks_for(count), threads, 0, stream>>>(bits, count, found);
  }
  check_launch("find_non_finite");
}

}  // namespace coppice::cuda
