#include "kernels/quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "kernels/block_fields.h"
#include "kernels/cpu/block_fits.h"

namespace coppice {
namespace {

constexpr int small = 32, medium = 64, large = 256;

/// To the nearest whole number, ties to even; of magnitudes below 2^22. Vectorises on any
/// processor.
float whole(float value) {
  constexpr float shift = 0x1.8p23f;
  return (value + shift) - shift;
}

/// Writes a half and returns what it stands for.
float put_half(float value, std::byte* to) {
  const std::uint16_t half = half_of(value);
  std::memcpy(to, &half, sizeof half);
  return block_fields::half_at(to);
}

/// Returns 1 / value; 0 for scales that are nothing in 16 bits.
float inverse_of(float value) { return std::abs(value) < 0x1p-30f ? 0.0f : 1.0f / value; }

void quantise_q8_0(const float* x, std::byte* block) {
  float most = 0.0f;
  for (int i = 0; i < small; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 127.0f, inverse = inverse_of(d);
  put_half(d, block);
  for (int i = 0; i < small; ++i) {
    block[2 + i] = static_cast<std::byte>(static_cast<int>(std::round(x[i] * inverse)));
  }
}

/// q4_0 and q5_0: the largest magnitude becomes the lowest number.
void quantise_centred(const float* x, int bits, std::byte* block) {
  float extreme = 0.0f;
  for (int i = 0; i < small; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  const int half = 1 << (bits - 1);
  const float d = extreme / static_cast<float>(-half), inverse = inverse_of(d);
  put_half(d, block);
  std::uint32_t fifth = 0;
  std::byte* const nibbles = block + (bits == 5 ? 6 : 2);
  const auto number = [&](int i) {
    const int q = static_cast<int>(x[i] * inverse + (static_cast<float>(half) + 0.5f));
    return static_cast<unsigned>(std::clamp(q, 0, 2 * half - 1));
  };
  for (int i = 0; i < 16; ++i) {
    const unsigned low = number(i), high = number(i + 16);
    fifth |= (low >> 4 & 1u) << i | (high >> 4 & 1u) << (i + 16);
    nibbles[i] = static_cast<std::byte>((low & 15u) | (high & 15u) << 4);
  }
  if (bits == 5) std::memcpy(block + 2, &fifth, sizeof fifth);
}

/// To the nearest E4M3, ties to even; beyond its range 448.
std::byte e4m3_of(float value) {
  constexpr std::uint32_t largest = 0x7e;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80u;
  const float magnitude = std::abs(value);
  // Without branches, so that it vectorises.
  const auto tiny =
      static_cast<std::uint32_t>(static_cast<int>(whole(std::min(magnitude, 1.0f) * 0x1p9f)));
  const std::uint32_t positive = bits & 0x7fffffffu;
  const std::uint32_t usual = ((positive + 0x7ffffu + (positive >> 20 & 1u)) >> 20) - (120u << 3);
  const std::uint32_t rounded = magnitude < 0x1p-6f ? tiny : std::min(usual, largest);
  return static_cast<std::byte>(sign | rounded);
}

void quantise_fp8(const float* x, std::byte* block) {
  float most = 0.0f;
  for (int i = 0; i < medium; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 448.0f;
  std::memcpy(block, &d, sizeof d);
  for (int i = 0; i < medium; ++i) block[4 + i] = d > 0.0f ? e4m3_of(x[i] / d) : std::byte{0};
}

void quantise_int4(const float* x, const cpu::GridFit& grid, std::byte* block) {
  const float scale = put_half(grid.scale, block);
  block[2] = static_cast<std::byte>(static_cast<int>(grid.zero));
  const float inverse = inverse_of(scale);
  const auto number = [&](int i) {
    return static_cast<unsigned>(std::clamp(whole(x[i] * inverse) + grid.zero, 0.0f, 15.0f));
  };
  for (int i = 0; i < 16; ++i) {
    block[3 + i] = static_cast<std::byte>(number(i) | number(i + 16) << 4);
  }
}

void quantise_q4_k(const float* x, std::span<const cpu::AffineFit, 8> groups, std::byte* block) {
  float most_scale = 0.0f, most_minimum = 0.0f;
  for (const cpu::AffineFit& group : groups) {
    most_scale = std::max(most_scale, group.scale);
    most_minimum = std::max(most_minimum, group.minimum);
  }
  constexpr float most = 63.0f;
  const float d = put_half(most_scale / most, block);
  const float dmin = put_half(most_minimum / most, block + 2);
  std::array<unsigned, 8> scales, minima;
  const auto steps = [](float value, float unit) {
    return static_cast<unsigned>(std::clamp(whole(value * inverse_of(unit)), 0.0f, 63.0f));
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    scales[g] = steps(groups[g].scale, d);
    minima[g] = steps(groups[g].minimum, dmin);
  }
  for (std::size_t j = 0; j < 4; ++j) {
    block[4 + j] = static_cast<std::byte>(scales[j] | scales[j + 4] >> 4 << 6);
    block[8 + j] = static_cast<std::byte>(minima[j] | minima[j + 4] >> 4 << 6);
    block[12 + j] = static_cast<std::byte>((scales[j + 4] & 15u) | (minima[j + 4] & 15u) << 4);
  }
  std::array<std::uint8_t, large> numbers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const float inverse = inverse_of(d * static_cast<float>(scales[g]));
    const float minimum = dmin * static_cast<float>(minima[g]);
    for (std::size_t i = 32 * g; i < 32 * g + 32; ++i) {
      const float q = std::clamp((x[i] + minimum) * inverse, 0.0f, 15.0f);
      numbers[i] = static_cast<std::uint8_t>(static_cast<int>(whole(q)));
    }
  }
  for (std::size_t run = 0; run < 4; ++run) {
    for (std::size_t i = 0; i < 32; ++i) {
      block[16 + 32 * run + i] =
          static_cast<std::byte>(numbers[64 * run + i] | numbers[64 * run + 32 + i] << 4);
    }
  }
}

void quantise_q6_k(const float* x, std::span<const float, 16> scales, std::byte* block) {
  float extreme = 0.0f;
  for (const float scale : scales) {
    if (std::abs(scale) > std::abs(extreme)) extreme = scale;
  }
  const float d = put_half(extreme / -128.0f, block + 208);
  std::array<std::uint8_t, large> numbers;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const float sub = whole(std::clamp(scales[g] * inverse_of(d), -128.0f, 127.0f));
    block[192 + g] = static_cast<std::byte>(static_cast<int>(sub));
    const float inverse = inverse_of(d * sub);
    for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const float q = std::clamp(x[i] * inverse, -32.0f, 31.0f);
      numbers[i] = static_cast<std::uint8_t>(static_cast<int>(whole(q) + 32.0f));
    }
  }
  for (std::size_t half = 0; half < 2; ++half) {
    const std::uint8_t* const n = numbers.data() + 128 * half;
    for (std::size_t i = 0; i < 32; ++i) {
      block[64 * half + i] = static_cast<std::byte>((n[i] & 15) | (n[i + 64] & 15) << 4);
      block[64 * half + 32 + i] = static_cast<std::byte>((n[i + 32] & 15) | (n[i + 96] & 15) << 4);
      block[128 + 32 * half + i] = static_cast<std::byte>(
          n[i] >> 4 | n[i + 32] >> 4 << 2 | n[i + 64] >> 4 << 4 | n[i + 96] >> 4 << 6);
    }
  }
}

}  // namespace

std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const float magnitude = std::abs(value);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x1p-14f) {
    const float steps = whole(magnitude * 0x1p24f);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps));
  }
  const std::uint32_t positive = bits & 0x7fffffffu;
  const std::uint32_t rounded = positive + 0xfffu + (positive >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

void quantise(WeightFormat format, std::span<const float> numbers, std::byte* blocks) {
  const BlockShape shape = block_shape(format);
  const auto width = static_cast<std::size_t>(shape.numbers);
  const float* x = numbers.data();
  // Blocks whose groups' fits are searched for together.
  constexpr std::size_t together = 64;
  const auto in_runs = [&](const auto& quantise_run) {
    for (std::size_t left = numbers.size() / width; left > 0;) {
      const std::size_t count = std::min(left, together);
      quantise_run(count);
      left -= count;
    }
  };
  const auto in_turn = [&](std::size_t count, const auto& quantise_block) {
    for (std::size_t i = 0; i < count; ++i, x += width, blocks += shape.bytes) quantise_block(i);
  };
  const auto each = [&](const auto& quantise_block) {
    in_turn(numbers.size() / width, [&](std::size_t) { quantise_block(x, blocks); });
  };
  switch (format) {
    case WeightFormat::q8_0:
      return each(quantise_q8_0);
    case WeightFormat::q4_0:
      return each([](const float* from, std::byte* to) { quantise_centred(from, 4, to); });
    case WeightFormat::q5_0:
      return each([](const float* from, std::byte* to) { quantise_centred(from, 5, to); });
    case WeightFormat::fp8:
      return each(quantise_fp8);
    case WeightFormat::q4_k:
      return in_runs([&](std::size_t count) {
        std::array<cpu::AffineFit, 8 * together> fits;
        cpu::fit_affine(x, 8 * count, fits.data());
        in_turn(count, [&](std::size_t i) {
          quantise_q4_k(x, std::span(fits).subspan(8 * i).first<8>(), blocks);
        });
      });
    case WeightFormat::q6_k:
      return in_runs([&](std::size_t count) {
        std::array<float, 16 * together> scales;
        cpu::fit_scales(x, 16 * count, scales.data());
        in_turn(count, [&](std::size_t i) {
          quantise_q6_k(x, std::span(scales).subspan(16 * i).first<16>(), blocks);
        });
      });
    case WeightFormat::int4:
      return in_runs([&](std::size_t count) {
        std::array<cpu::GridFit, together> fits;
        cpu::fit_grids(x, count, fits.data());
        in_turn(count, [&](std::size_t i) { quantise_int4(x, fits[i], blocks); });
      });
    default:
      throw_failure(cat("weights are not quantised to ", name_of(format)));
  }
}

}  // namespace coppice
