// Neighbouring elements that move in one memory instruction, and how kernels over
// [rows, width] share out their columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace coppice::cuda {

/// Elements per vector where widths and alignment allow; 1 elsewhere.
inline constexpr int vector_width = 4;

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <int N, typename T>
__device__ inline Vector<T, N> load(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <typename T, int N>
__device__ inline void store(const Vector<T, N>& vector, T* to) {
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

template <int N>
__device__ inline Vector<__nv_bfloat16, N> rounded(const Vector<float, N>& from) {
  Vector<__nv_bfloat16, N> to;
#pragma unroll
  for (int k = 0; k < N; ++k) to.at[k] = __float2bfloat16_rn(from.at[k]);
  return to;
}

template <typename T>
__device__ inline float widened(T value) {
  return static_cast<float>(value);
}

/// Whether vectors of `vector_width` elements of `element_bytes` can be loaded from `pointer`.
inline bool takes_vectors(const void* pointer, std::size_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (element_bytes * vector_width) == 0;
}

inline constexpr int column_threads = 256;

/// Blocks of column_threads that cover `columns` columns.
inline unsigned column_blocks(std::int64_t columns) {
  return static_cast<unsigned>((columns + column_threads - 1) / column_threads);
}

/// The column of this thread where blocks are (rows, column_blocks).
__device__ inline std::int64_t column_of_thread() {
  return std::int64_t{blockIdx.y} * column_threads + threadIdx.x;
}

}  // namespace coppice::cuda
