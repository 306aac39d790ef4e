// What attention kernels ask of a warp: matrix fragments and asynchronous copies (PTX), and the
// shared memory that a block's KV tiles pass through.
//
// Fragments of mma.m16n8k16, with lane = 4 g + t:
//   a[0..3]  rows g, g + 8, g, g + 8; columns 2t, 2t, 2t + 8, 2t + 8 and the next one each
//   b[0..1]  column g; rows 2t, 2t + 8 and the next one each
//   c[0..3]  row g columns 2t, 2t + 1; row g + 8 columns 2t, 2t + 1
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_operands.h"
#include "kernels/cuda/attention/flatten_plan.h"

namespace coppice::cuda::flatten {

inline constexpr unsigned all_lanes = 0xffffffffu;
/// Tokens whose scores a warp holds at a time.
inline constexpr int step_tokens = 32;

/// c += a b.
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices of bf16; lane 8 i + r names row r of matrix i. Lane 4 g + t receives of
/// each matrix elements 2t and 2t + 1 of row g, or of column g.
__device__ inline void load_rows(std::uint32_t (&matrices)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_columns(std::uint32_t (&matrices)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Starts copying 16 bytes, or clearing them where not `valid`; `global` is a valid address even
/// then.
__device__ inline void copy_or_clear(uint4* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)),
                 "r"(valid ? 16 : 0)
               : "memory");
}
/// Waits for this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

/// 2^x, 0 for -inf; relative error below 2^-22.
__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// x becomes tanh(factor x); absolute error below 2^-21. To be called by whole warps. Where none of
/// their arguments is large this takes no special functions, of which a multiprocessor has few, and
/// where all are small, little else.
template <int count>
__device__ inline void hyperbolic_tangents(float (&x)[count], float factor) {
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    x[i] *= factor;
    most = fmaxf(most, fabsf(x[i]));
  }
  // Polynomials of least relative error: 2^-21 up to 1/4, 2^-25 up to 3/4, but for rounding.
  if (__all_sync(all_lanes, most <= 0.25f)) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float square = x[i] * x[i];
      const float quotient = fmaf(0.12841613590717316f, square, -0.33321908116340637f);
      x[i] *= fmaf(quotient, square, 0.9999995827674866f);
    }
  } else if (__all_sync(all_lanes, most <= 0.75f)) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float square = x[i] * x[i];
      float quotient = fmaf(-0.004716250579804182f, square, 0.019582899287343025f);
      quotient = fmaf(quotient, square, -0.053344424813985825f);
      quotient = fmaf(quotient, square, 0.1332540661096573f);
      quotient = fmaf(quotient, square, -0.33332958817481995f);
      x[i] *= fmaf(quotient, square, 1.0f);
    }
  } else {
    constexpr float exponent = 2.885390081777927f;  // 2 log2(e)
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float inverse;
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power_of_two(exponent * x[i])));
      x[i] = fmaf(-2.0f, inverse, 1.0f);
    }
  }
}

/// Two values as bf16, the first in the lower half.
__device__ inline std::uint32_t pack(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return std::uint32_t{__bfloat16_as_ushort(both.x)} |
         (std::uint32_t{__bfloat16_as_ushort(both.y)} << 16);
}

/// One variant of the kernel: a warp has 16 packed rows. `window_or_cap`: it obeys windows and soft
/// caps.
template <int head_dim_, int warps_, bool window_or_cap_ = false>
struct Variant {
  static constexpr int head_dim = head_dim_;
  static constexpr bool window_or_cap = window_or_cap_;
  /// Products take 16 elements at a time; what lies past the head is 0.
  static constexpr int padded_dim = (head_dim + 15) / 16 * 16;
  static constexpr int warps = warps_;
  static constexpr int threads = 32 * warps;
  static constexpr int tile_rows = 16 * warps;
  /// Tokens of a KV tile. A block of one warp takes fewer, so that more blocks fit; larger heads
  /// leave shared memory for no more.
  static constexpr int tile_tokens = warps == 1 || head_dim > 128 ? step_tokens : 2 * step_tokens;
  /// Registers are kept to what this many allow: an SM of 9.0 has shared memory for as many at
  /// head_dim 128. Queries and sums of larger heads need the registers of two.
  static constexpr int blocks_per_sm = warps == 1 ? 6 : head_dim > 128 ? 2 : 3;
  /// Products of 16 elements, whose queries stay in registers; those of the others come from shared
  /// memory.
  static constexpr int products = padded_dim / 16;
  static constexpr int kept_queries = products <= 12 ? products : 12;
  /// 16-byte vectors of a token's key.
  static constexpr int vectors = padded_dim / 8;
  static_assert(head_dim % 8 == 0 && tile_tokens * vectors % threads == 0 &&
                tile_tokens <= threads);
};

/// By thread, what it has of the queries that are not kept in registers.
template <typename V, int count = V::products - V::kept_queries>
struct StoredQueries {
  uint4 queries[count][V::threads];
};
template <typename V>
struct StoredQueries<V, 0> {};

/// Two KV tiles, one read while the other is filled, and three tiles' worth of token descriptions,
/// which run one tile ahead of the copies.
template <typename V, typename SeenBy>
struct SharedTiles : StoredQueries<V> {
  /// With an odd number of vectors, eight rows of a matrix lie in different banks.
  uint4 keys[2][V::tile_tokens][V::vectors + 1];
  uint4 values[2][V::tile_tokens][V::vectors + 1];
  /// Queries of the row tile that see the token.
  SeenBy seen_by[3][V::tile_tokens];
  /// Where its key and value lie, in rows of head_dim from the layer's first; -1 where none sees
  /// it.
  std::int32_t pool_row[3][V::tile_tokens];
};

/// Two descriptions that lie side by side, read at once.
template <typename SeenBy>
struct alignas(16) Neighbours {
  SeenBy first, second;
  static_assert(sizeof(SeenBy) == 8);
};

}  // namespace coppice::cuda::flatten
