// How weights lie in files: plain numbers, or blocks of numbers of few bits with common scales.
//
// A row of a matrix [out, in] is a sequence of whole blocks along `in`. Of blocks the bytes are
// ggml's (ggml-common.h of llama.cpp; GGUF files hold them so), little-endian; q, d, m below are
// numbers, scales and minima:
//
//   q8_0     32: f16 d, 32 int8                                    d q
//   q4_0     32: f16 d, 16 bytes of nibbles                        d (q - 8)
//   q4_1     32: f16 d, f16 m, nibbles                             d q + m
//   q5_0     32: f16 d, 32 fifth bits, nibbles                     d (q - 16)
//   q5_1     32: f16 d, f16 m, 32 fifth bits, nibbles              d q + m
//   q2_k    256: 16 scales and minima of 4 bits, 2-bit q, f16 d, dmin
//   q3_k    256: third bits, 2-bit q, 16 scales of 6 bits, f16 d
//   q4_k    256: f16 d, dmin, 8 scales and minima of 6 bits, nibbles
//   q5_k    256: the same with fifth bits before the nibbles
//   q6_k    256: nibbles, two high bits, 16 int8 scales, f16 d
//   iq4_nl   32: f16 d, nibbles that look q up in a table of 16
//   iq4_xs  256: f16 d, 8 scales of 6 bits, nibbles that look q up in the same table
//
// coppice's own, which the packings of AWQ, GPTQ, FP8 and compressed-tensors become:
//
//   int4     32: f16 d, byte z, nibbles                            d (q - z)
//   fp8      64: f32 d, 64 bytes of E4M3                           d x
//
// E4M3 is a sign, 4 bits of exponent (bias 7) and 3 of fraction; all ones but for the sign is NaN,
// none is infinite, and the largest is 448.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/dtype.h"

namespace coppice {

enum class WeightFormat : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  int4,
  fp8
};

inline constexpr std::array all_weight_formats = {
    WeightFormat::f32,  WeightFormat::f16,    WeightFormat::bf16,   WeightFormat::q8_0,
    WeightFormat::q4_0, WeightFormat::q4_1,   WeightFormat::q5_0,   WeightFormat::q5_1,
    WeightFormat::q2_k, WeightFormat::q3_k,   WeightFormat::q4_k,   WeightFormat::q5_k,
    WeightFormat::q6_k, WeightFormat::iq4_nl, WeightFormat::iq4_xs, WeightFormat::int4,
    WeightFormat::fp8};

/// Numbers of one block, neighbours along `in`, and its bytes.
struct BlockShape {
  std::int64_t numbers = 1;
  std::int64_t bytes = 0;
};

BlockShape block_shape(WeightFormat format);
/// "F32", "Q4_K", ...: as ggml and safetensors write it.
std::string_view name_of(WeightFormat format);
WeightFormat format_of(DType dtype);
/// The element type of plain numbers; std::nullopt of blocks.
std::optional<DType> dtype_of(WeightFormat format);
/// Whether it has blocks of whole numbers, which products in integers multiply.
bool has_integers(WeightFormat format);
/// Whether files do not name it as a type: coppice's own.
bool is_own(WeightFormat format);
/// Bytes of `numbers` numbers, which fill whole blocks.
std::uint64_t bytes_of(WeightFormat format, std::uint64_t numbers);

/// Writes the numbers of whole blocks to `out`, rounded as ggml's and the gguf library's own
/// functions do (bit for bit).
void dequantise(WeightFormat format, std::span<const std::byte> blocks, float* out);

/// To the nearest, ties to even.
std::uint16_t rounded_to_bf16(float value);

/// Whether a scale or minimum of whole blocks is NaN or infinite; of fp8, too, a number or its
/// product with the scale.
bool has_non_finite_scale(WeightFormat format, std::span<const std::byte> blocks);

}  // namespace coppice
