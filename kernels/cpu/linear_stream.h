// Products of few rows, bound by reading the weights: each weight is read once from memory
// and used for all rows.
#pragma once

#include <cstdint>

namespace coppice::cpu {

/// Output features per block of the packed weights. Blocks follow one another; within one,
///   f32   [in rounded up to 16][64]
///   bf16  [in rounded up to 32, by pairs][64][2]
/// with zeros as padding (oneDNN's BA16a64b and BA16a64b2a).
inline constexpr std::int64_t stream_block = 64;

struct StreamProduct {
  const void* weights;
  const float* bias;  ///< [out] or nullptr
  const void* x;      ///< [rows, in]
  std::int32_t rows;
  std::int64_t in, out;
  float* y;  ///< [rows, out]
  bool accumulate;
};

/// Computes the output features of blocks [block_begin, block_end).
void stream_f32(const StreamProduct& product, std::int64_t block_begin, std::int64_t block_end);
/// Needs AVX-512 BF16.
void stream_bf16(const StreamProduct& product, std::int64_t block_begin, std::int64_t block_end);

}  // namespace coppice::cpu
