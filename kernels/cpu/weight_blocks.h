// Weights as the CPU's products read them: each weight once per pass, whatever the row count.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/packed_format.h"
#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

/// Output features per block. Blocks follow one another; within one,
///   f32, f16  [in][64]
///   bf16      [in rounded up to 32, by pairs][64][2]: oneDNN's BA16a64b2a
///   others    four strips (packed_format.h)
/// with zeros as padding. A pair of bf16 widens to f32 by a shift and a mask.
inline constexpr std::int64_t block_width = 64;

struct WeightBlocks {
  WeightFormat format = WeightFormat::f32;
  std::int64_t in = 0, out = 0;
  DeviceBuffer data;
  bool non_finite = false;  ///< a weight is NaN or infinite as read, or as kept

  static std::int64_t elements(DType type, std::int64_t in) {
    return (type == DType::bf16 ? (in + 31) / 32 * 32 : in) * block_width;
  }
  std::int64_t count() const { return (out + block_width - 1) / block_width; }
  std::int64_t block_bytes() const {
    const std::optional<DType> plain = dtype_of(format);
    if (!plain) return block_width / strip_width * strip_bytes(format, in);
    return elements(*plain, in) * static_cast<std::int64_t>(size_of(*plain));
  }
};

/// The format that all parts have; f32, which holds all plain numbers exactly, if they differ.
WeightFormat common_format(std::span<const LinearPart> parts);

/// Packs parts, stacked by output features, as `format`: what is of another is widened to f32, or
/// rounded once to bf16. Throws what reading the parts throws.
WeightBlocks pack_blocks(std::span<const LinearPart> parts, std::int64_t in, WeightFormat format,
                         Workers& workers);

/// Inputs [begin, end) of a block of quantised weights, multiples of 32 (of fp8 64), dequantised to
/// out[i][block_width].
void expand_block(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                  std::int64_t end, float* out);
/// The same of fp8.
void expand_fp8(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                std::int64_t end, float* out);
/// Row `row` of weights that are quantised, dequantised, or of f32.
void unpack_row(const WeightBlocks& weights, std::int64_t row, float* out);

class QuantisedRows;

/// y (+)= x W^T + bias
struct LinearProduct {
  const WeightBlocks& weights;
  const float* bias;  ///< [out] or nullptr
  const void* x;      ///< [rows, in], f32 or bf16 as the function says
  std::int32_t rows;
  float* y;             ///< [rows, stride], of which the first `out` are written
  std::int64_t stride;  ///< at least out
  bool accumulate;
  const QuantisedRows* quantised = nullptr;  ///< x as multiply_quantised() takes it
};

/// The output features of blocks [block_begin, block_end). Weights of any type, x and sums f32.
/// Each output is one sum in the order of the inputs, to which bias and former value are added:
/// neither the instruction set's vectors, nor the other rows, nor the threads change it (a
/// set without fused multiply-add rounds products too).
void multiply_f32(const LinearProduct& product, std::int64_t block_begin, std::int64_t block_end);
/// The same, and the same bits, of fp8 and at most most_fp8_rows rows: faster for so few.
inline constexpr std::int32_t most_fp8_rows = 6;
void multiply_fp8(const LinearProduct& product, std::int64_t block_begin, std::int64_t block_end);
/// The same of quantised weights and quantised x: each sum goes by whole numbers within 32 inputs
/// (or 16, where they share a scale), and from group to group in f32.
void multiply_quantised(const LinearProduct& product, std::int64_t block_begin,
                        std::int64_t block_end);
/// The same for weights and x of bf16 by the processor's dot instruction, sums f32. Needs AVX-512
/// BF16; meant for few rows.
void multiply_bf16(const LinearProduct& product, std::int64_t block_begin, std::int64_t block_end);

}  // namespace coppice::cpu
