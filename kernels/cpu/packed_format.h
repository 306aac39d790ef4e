// How the CPU keeps quantised weights: the file's bits, sorted so that one vector holds the same
// four inputs of 16 outputs.
//
// A strip is 16 outputs. It is a sequence of super-blocks along `in`, of 32 inputs (formats with
// plain scales), 64 (fp8) or 256 (those with sub-scales); a super-block is
//
//   d        16 f16, and 16 more of minima where the format has them, or 16 bytes of zeros (int4);
//            16 f32 (fp8)
//   then for each group of 32 inputs:
//   scales   sub-scales 16 bytes, sub-minima 16 bytes, each twice where 16 inputs share one
//            (q2_k: one byte for both, minimum in the high nibble)
//   low      low bits of the numbers, `low_bits` planes of 64 bytes
//   high     the rest, `high_bits` planes of 64 bytes
//
// Numbers go by quads: quad k of a group is inputs 4k to 4k + 3 of all outputs, byte 4 o + i of a
// vector being input 4k + i of output o. Of the low 4 bits, quad 2k stands in the low nibbles of
// plane k and quad 2k + 1 in the high ones; of 2 bits, quads 4k to 4k + 3 stand in the pairs of
// bits of plane k; of 1 bit, quad k is bit k. Numbers are unsigned here: kept + offset; E4M3 is as
// stored.
#pragma once

#include <cstdint>

#include "kernels/block_fields.h"

namespace coppice::cpu {

inline constexpr std::int64_t strip_width = 16;
inline constexpr std::int64_t group_inputs = 32;
inline constexpr std::int64_t quads_of_group = 8;
inline constexpr std::int64_t quad_bytes = 4 * strip_width;

enum class SubScales : std::uint8_t { none, whole_bytes, nibbles };

struct PackedFormat {
  std::int32_t low_bits = 4;   ///< 8, 4 or 2
  std::int32_t high_bits = 0;  ///< 2, 1 or 0
  std::int32_t shared = 32;    ///< inputs that share a scale
  bool minima = false;
  SubScales sub_scales = SubScales::none;
  std::int32_t offset = 0;
  bool looked_up = false;  ///< low bits are places in iq4_numbers
  bool zeros = false;      ///< minima are -(d z)
  bool e4m3 = false;       ///< numbers are, and d is f32

  constexpr std::int32_t groups() const { return e4m3 ? 2 : sub_scales == SubScales::none ? 1 : 8; }
  constexpr std::int64_t super_inputs() const { return groups() * group_inputs; }
  constexpr std::int32_t scales_of_group() const {
    return static_cast<std::int32_t>(group_inputs) / shared;
  }
  constexpr std::int64_t header_bytes() const {
    return strip_width * (zeros ? 3 : minima || e4m3 ? 4 : 2);
  }
  constexpr std::int64_t scale_bytes() const {
    if (sub_scales == SubScales::none) return 0;
    const bool both = minima && sub_scales == SubScales::whole_bytes;
    return strip_width * scales_of_group() * (both ? 2 : 1);
  }
  constexpr std::int64_t low_bytes() const { return quad_bytes * low_bits; }
  constexpr std::int64_t group_bytes() const {
    return scale_bytes() + low_bytes() + quad_bytes * high_bits;
  }
  constexpr std::int64_t super_bytes() const { return header_bytes() + groups() * group_bytes(); }
  /// Largest number as kept.
  constexpr std::int32_t largest() const {
    return looked_up ? 255 : (1 << (low_bits + high_bits)) - 1;
  }
};

/// Describes how a format of blocks is packed.
constexpr PackedFormat packed_format(WeightFormat format) {
  constexpr SubScales bytes = SubScales::whole_bytes;
  const std::int32_t zero = block_fields::zero_of(format);
  switch (format) {
    case WeightFormat::q8_0:
      return {8, 0, 32, false, SubScales::none, zero, false};
    case WeightFormat::q4_0:
      return {4, 0, 32, false, SubScales::none, zero, false};
    case WeightFormat::q4_1:
      return {4, 0, 32, true, SubScales::none, 0, false};
    case WeightFormat::q5_0:
      return {4, 1, 32, false, SubScales::none, zero, false};
    case WeightFormat::q5_1:
      return {4, 1, 32, true, SubScales::none, 0, false};
    case WeightFormat::q2_k:
      return {2, 0, 16, true, SubScales::nibbles, 0, false};
    case WeightFormat::q3_k:
      return {2, 1, 16, false, bytes, zero, false};
    case WeightFormat::q4_k:
      return {4, 0, 32, true, bytes, 0, false};
    case WeightFormat::q5_k:
      return {4, 1, 32, true, bytes, 0, false};
    case WeightFormat::q6_k:
      return {4, 2, 16, false, bytes, zero, false};
    case WeightFormat::iq4_nl:
      return {4, 0, 32, false, SubScales::none, 128, true};
    case WeightFormat::iq4_xs:
      return {4, 0, 32, false, bytes, 128, true};
    case WeightFormat::int4:
      return {4, 0, 32, true, SubScales::none, 0, false, true};
    case WeightFormat::fp8:
      return {8, 0, 32, false, SubScales::none, 0, false, false, true};
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
  return {};
}

/// Bytes of a strip of `in` inputs, whole blocks of the format.
constexpr std::int64_t strip_bytes(WeightFormat format, std::int64_t in) {
  const PackedFormat packed = packed_format(format);
  return in / packed.super_inputs() * packed.super_bytes();
}

/// Packs 16 outputs: rows[o] are the blocks of output o, `in` numbers; nullptr: zeros.
void pack_strip(WeightFormat format, const std::byte* const (&rows)[strip_width], std::int64_t in,
                std::byte* strip);

/// One output's share of a group, of a format of whole numbers.
struct UnpackedGroup {
  std::int32_t numbers[group_inputs];  ///< what scales multiply
  float scales[2], minima[2];          ///< of each `shared` inputs
};
UnpackedGroup unpack_group(WeightFormat format, const std::byte* strip, std::int64_t group,
                           std::int64_t output);

/// The weights of output `output` of a strip, as dequantise() gives them.
void unpack_row(WeightFormat format, const std::byte* strip, std::int64_t in, std::int64_t output,
                float* out);

}  // namespace coppice::cpu
