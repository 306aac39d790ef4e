// The numbers and scales in one block of a quantised format (kernels/weight_format.h), unpacked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace coppice::block_fields {

inline constexpr std::int64_t most_numbers = 256;

/// What scales multiply: those of IQ4 are looked up, of formats without minima the offset is
/// subtracted.
using Numbers = std::array<std::int8_t, most_numbers>;

/// What a nibble of IQ4 stands for.
inline constexpr std::array<std::int8_t, 16> iq4_numbers = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// weight = scale_of(group) number + minimum_of(group), each rounded to f32. Of formats with
/// sub-scales both are products, d sub_scale and -(dmin sub_minimum).
struct Scales {
  std::int64_t group = 32;  ///< numbers that share a scale
  bool has_minima = false;
  bool has_sub_scales = false;
  float d = 0.0f;        ///< scale
  float minimum = 0.0f;  ///< m, -dmin, or -(d z)
  std::array<std::int8_t, 16> sub_scales{};
  std::array<std::uint8_t, 16> sub_minima{};

  float scale_of(std::int64_t g) const {
    return has_sub_scales ? d * static_cast<float>(sub_scales[static_cast<std::size_t>(g)]) : d;
  }
  float minimum_of(std::int64_t g) const {
    return has_sub_scales ? minimum * static_cast<float>(sub_minima[static_cast<std::size_t>(g)])
                          : minimum;
  }
};

std::uint16_t word_at(const std::byte* at);
/// Converts IEEE's binary16.
float half_at(const std::byte* at);
float float_at(const std::byte* at);
float value_of_e4m3(std::byte byte);

/// Whether an f16 m or dmin follows d.
bool has_stored_minimum(WeightFormat format);
/// Where a block's d stands.
const std::byte* d_of(WeightFormat format, const std::byte* block);

/// Numbers as their bits say, from 0 on, four to a word, the first in the lowest byte. Of q8_0 128
/// is added, so that they are unsigned; those of IQ4 are places in iq4_numbers, those of fp8 E4M3.
using BitWords = std::array<std::uint32_t, most_numbers / 4>;
void read_bits(WeightFormat format, const std::byte* block, BitWords& words);
/// What bits of a number stand for 0; of formats with minima 0.
constexpr int zero_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::q8_0:
      return 128;
    case WeightFormat::q4_0:
      return 8;
    case WeightFormat::q5_0:
      return 16;
    case WeightFormat::q3_k:
      return 4;
    case WeightFormat::q6_k:
      return 32;
    default:
      return 0;
  }
}

/// Reads a block of whole numbers. Those of formats with minima begin at 0.
void read_numbers(WeightFormat format, const std::byte* block, Numbers& numbers);
/// Reads the scales of a block.
void read_scales(WeightFormat format, const std::byte* block, Scales& scales);

}  // namespace coppice::block_fields
