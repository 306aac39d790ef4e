#include "kernels/weight_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/block_fields.h"

namespace coppice {
namespace {

using namespace block_fields;

constexpr std::int64_t small = 32, medium = 64, large = 256;

struct Known {
  std::string_view name;
  BlockShape shape;
};

constexpr std::array<Known, all_weight_formats.size()> known = {{
    {"F32", {1, 4}},
    {"F16", {1, 2}},
    {"BF16", {1, 2}},
    {"Q8_0", {small, 34}},
    {"Q4_0", {small, 18}},
    {"Q4_1", {small, 20}},
    {"Q5_0", {small, 22}},
    {"Q5_1", {small, 24}},
    {"Q2_K", {large, 84}},
    {"Q3_K", {large, 110}},
    {"Q4_K", {large, 144}},
    {"Q5_K", {large, 176}},
    {"Q6_K", {large, 210}},
    {"IQ4_NL", {small, 18}},
    {"IQ4_XS", {large, 136}},
    {"INT4", {small, 19}},
    {"FP8", {medium, 68}},
}};

const Known& of(WeightFormat format) { return known[static_cast<std::size_t>(format)]; }

/// Numbers of a block whose groups have a scale, and a minimum where the format has minima.
void dequantise_block(WeightFormat format, const std::byte* block, float* out) {
  Numbers numbers;
  read_numbers(format, block, numbers);
  Scales scales;
  read_scales(format, block, scales);
  const std::int64_t groups = of(format).shape.numbers / scales.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    const float scale = scales.scale_of(g);
    const float minimum = scales.minimum_of(g);
    for (std::int64_t i = g * scales.group; i < (g + 1) * scales.group; ++i) {
      const float product = scale * static_cast<float>(numbers[static_cast<std::size_t>(i)]);
      out[i] = scales.has_minima ? product + minimum : product;
    }
  }
}

void dequantise_fp8(const std::byte* block, float* out) {
  const float scale = float_at(block);
  for (std::int64_t i = 0; i < medium; ++i) out[i] = scale * value_of_e4m3(block[4 + i]);
}

/// NaN counts, whose bits are those of the largest number.
bool has_non_finite_fp8(const std::byte* block) {
  std::byte largest{};
  for (std::int64_t i = 0; i < medium; ++i) {
    largest = std::max(largest, block[4 + i] & std::byte{0x7f});
  }
  return !std::isfinite(float_at(block) * value_of_e4m3(largest));
}

}  // namespace

BlockShape block_shape(WeightFormat format) { return of(format).shape; }

std::string_view name_of(WeightFormat format) { return of(format).name; }

WeightFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return WeightFormat::f32;
    case DType::f16:
      return WeightFormat::f16;
    case DType::bf16:
      break;
  }
  return WeightFormat::bf16;
}

std::optional<DType> dtype_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return DType::f32;
    case WeightFormat::f16:
      return DType::f16;
    case WeightFormat::bf16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

bool has_integers(WeightFormat format) { return !dtype_of(format) && format != WeightFormat::fp8; }

bool is_own(WeightFormat format) {
  return format == WeightFormat::int4 || format == WeightFormat::fp8;
}

std::uint64_t bytes_of(WeightFormat format, std::uint64_t numbers) {
  const BlockShape shape = block_shape(format);
  return numbers / static_cast<std::uint64_t>(shape.numbers) *
         static_cast<std::uint64_t>(shape.bytes);
}

void dequantise(WeightFormat format, std::span<const std::byte> blocks, float* out) {
  const BlockShape shape = block_shape(format);
  const std::byte* const end = blocks.data() + blocks.size();
  for (const std::byte* block = blocks.data(); block < end; block += shape.bytes) {
    switch (format) {
      case WeightFormat::f32:
        std::memcpy(out, block, sizeof *out);
        break;
      case WeightFormat::f16:
        *out = half_at(block);
        break;
      case WeightFormat::bf16: {
        const std::uint32_t bits = std::uint32_t{word_at(block)} << 16;
        std::memcpy(out, &bits, sizeof *out);
        break;
      }
      case WeightFormat::fp8:
        dequantise_fp8(block, out);
        break;
      default:
        dequantise_block(format, block, out);
        break;
    }
    out += shape.numbers;
  }
}

std::uint16_t rounded_to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  bits += 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

bool has_non_finite_scale(WeightFormat format, std::span<const std::byte> blocks) {
  const BlockShape shape = block_shape(format);
  const bool two = has_stored_minimum(format);
  const auto infinite = [](const std::byte* half) { return (word_at(half) & 0x7c00u) == 0x7c00u; };
  const std::byte* const end = blocks.data() + blocks.size();
  for (const std::byte* block = blocks.data(); block < end; block += shape.bytes) {
    if (format == WeightFormat::fp8) {
      if (has_non_finite_fp8(block)) return true;
      continue;
    }
    const std::byte* const d = d_of(format, block);
    if (infinite(d) || (two && infinite(d + 2))) return true;
  }
  return false;
}

}  // namespace coppice
