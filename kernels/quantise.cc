#include "kernels/quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "kernels/block_fields.h"

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
  std::uint32_t rounded = largest;
  if (magnitude < 0x1p-6f) {
    rounded = static_cast<std::uint32_t>(whole(magnitude * 0x1p9f));
  } else if (magnitude < 464.0f) {
    const std::uint32_t positive = bits & 0x7fffffffu;
    rounded = ((positive + 0x7ffffu + (positive >> 20 & 1u)) >> 20) - (120u << 3);
  }
  return static_cast<std::byte>(sign | std::min(rounded, largest));
}

void quantise_fp8(const float* x, std::byte* block) {
  float most = 0.0f;
  for (int i = 0; i < medium; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 448.0f;
  std::memcpy(block, &d, sizeof d);
  for (int i = 0; i < medium; ++i) block[4 + i] = d > 0.0f ? e4m3_of(x[i] / d) : std::byte{0};
}

/// x is about scale (q - zero).
struct Grid {
  float scale = 0.0f, zero = 0.0f;
  float number_of(float x, float inverse) const {
    return std::clamp(whole(x * inverse) + zero, 0.0f, 15.0f);
  }
};

/// Chooses, among steps somewhat wider and narrower than the range asks for, each with the two
/// zeros next to the range's own, the one whose best scale has the least squares.
Grid fit_grid(const float* x) {
  float low = 0.0f, high = 0.0f;
  for (int i = 0; i < small; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  Grid best;
  float most = -1.0f;
  if (!(high - low > 0x1p-100f)) return best;
  for (int c = 0; c < 15; ++c) {
    const float inverse = (14.2f + 0.1f * static_cast<float>(c)) / (high - low);
    for (int side = 0; side < 2; ++side) {
      const Grid grid{
          0.0f, std::clamp(std::floor(-low * inverse) + static_cast<float>(side), 0.0f, 15.0f)};
      float qx = 0.0f, qq = 0.0f;
      for (int i = 0; i < small; ++i) {
        const float q = grid.number_of(x[i], inverse) - grid.zero;
        qx += q * x[i];
        qq += q * q;
      }
      // What is left of the squares is less by this.
      const float gained = qq > 0.0f ? qx / qq * qx : 0.0f;
      if (gained > most) {
        most = gained;
        best = {qq > 0.0f ? qx / qq : 0.0f, grid.zero};
      }
    }
  }
  return best;
}

void quantise_int4(const float* x, std::byte* block) {
  Grid grid = fit_grid(x);
  grid.scale = put_half(grid.scale, block);
  block[2] = static_cast<std::byte>(static_cast<int>(grid.zero));
  const float inverse = inverse_of(grid.scale);
  const auto number = [&](int i) { return static_cast<unsigned>(grid.number_of(x[i], inverse)); };
  for (int i = 0; i < 16; ++i) {
    block[3 + i] = static_cast<std::byte>(number(i) | number(i + 16) << 4);
  }
}

float root_mean_square(const float* x, int n) {
  float squares = 0.0f;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  return std::sqrt(squares / static_cast<float>(n));
}

/// x is about scale q - minimum, minimum at least 0.
struct Affine {
  float scale = 0.0f, minimum = 0.0f;
};

/// For q from 0 to `most`: of steps somewhat wider and narrower than the range asks for, the one
/// whose best line has the least weighted squares.
template <int kCount>
Affine fit_affine(const float* x, int most) {
  float low = 0.0f, high = x[0];
  for (int i = 0; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (high <= low) return {0.0f, -low};
  const float plain = root_mean_square(x, kCount);
  std::array<float, kCount> weights;
  for (int i = 0; i < kCount; ++i) weights[static_cast<std::size_t>(i)] = plain + std::abs(x[i]);
  Affine best{(high - low) / static_cast<float>(most), -low};
  float least = INFINITY;
  constexpr int candidates = 15;
  for (int c = 0; c < candidates; ++c) {
    const float steps = static_cast<float>(most) - 0.8f + 0.1f * static_cast<float>(c);
    const float inverse = steps / (high - low);
    float w_sum = 0, q_sum = 0, qq_sum = 0, x_sum = 0, qx_sum = 0, xx_sum = 0;
    for (int i = 0; i < kCount; ++i) {
      const float w = weights[static_cast<std::size_t>(i)];
      const float q = std::min(whole((x[i] - low) * inverse), static_cast<float>(most));
      w_sum += w;
      q_sum += w * q;
      qq_sum += w * q * q;
      x_sum += w * x[i];
      qx_sum += w * q * x[i];
      xx_sum += w * x[i] * x[i];
    }
    const float determinant = w_sum * qq_sum - q_sum * q_sum;
    if (!(determinant > 0.0f)) continue;
    float scale = (w_sum * qx_sum - x_sum * q_sum) / determinant;
    float offset = (qq_sum * x_sum - q_sum * qx_sum) / determinant;
    if (offset > 0.0f) {
      offset = 0.0f;
      scale = qx_sum / qq_sum;
    }
    const float error = xx_sum - 2.0f * (scale * qx_sum + offset * x_sum) + scale * scale * qq_sum +
                        2.0f * scale * offset * q_sum + offset * offset * w_sum;
    if (error < least) {
      least = error;
      best = {scale, -offset};
    }
  }
  return best;
}

void quantise_q4_k(const float* x, std::byte* block) {
  std::array<Affine, 8> groups;
  float most_scale = 0.0f, most_minimum = 0.0f;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g] = fit_affine<32>(x + 32 * g, 15);
    most_scale = std::max(most_scale, groups[g].scale);
    most_minimum = std::max(most_minimum, groups[g].minimum);
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
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float scale = d * static_cast<float>(scales[i / 32]);
    const float minimum = dmin * static_cast<float>(minima[i / 32]);
    const float q = std::clamp((x[i] + minimum) * inverse_of(scale), 0.0f, 15.0f);
    numbers[i] = static_cast<std::uint8_t>(whole(q));
  }
  for (std::size_t run = 0; run < 4; ++run) {
    for (std::size_t i = 0; i < 32; ++i) {
      block[16 + 32 * run + i] =
          static_cast<std::byte>(numbers[64 * run + i] | numbers[64 * run + 32 + i] << 4);
    }
  }
}

/// The scale that serves 16 numbers best, q from -32 to 31.
float fit_scale(const float* x) {
  float extreme = 0.0f;
  for (int i = 0; i < 16; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  float best = 0.0f, most = -1.0f;
  for (int c = -8; c <= 8; ++c) {
    const float inverse = -(32.0f + 0.1f * static_cast<float>(c)) / extreme;
    float qx = 0.0f, qq = 0.0f;
    for (int i = 0; i < 16; ++i) {
      const float q = std::clamp(whole(x[i] * inverse), -32.0f, 31.0f);
      const float w = x[i] * x[i];
      qx += w * q * x[i];
      qq += w * q * q;
    }
    // What is left of the squares is less by this.
    const float gained = qq > 0.0f ? qx * qx / qq : 0.0f;
    if (gained > most) {
      most = gained;
      best = qq > 0.0f ? qx / qq : 0.0f;
    }
  }
  return best;
}

void quantise_q6_k(const float* x, std::byte* block) {
  std::array<float, 16> scales;
  float extreme = 0.0f;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    scales[g] = fit_scale(x + 16 * g);
    if (std::abs(scales[g]) > std::abs(extreme)) extreme = scales[g];
  }
  const float d = put_half(extreme / -128.0f, block + 208);
  std::array<std::uint8_t, large> numbers;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const float sub = whole(std::clamp(scales[g] * inverse_of(d), -128.0f, 127.0f));
    block[192 + g] = static_cast<std::byte>(static_cast<int>(sub));
    for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const float q = std::clamp(x[i] * inverse_of(d * sub), -32.0f, 31.0f);
      numbers[i] = static_cast<std::uint8_t>(whole(q) + 32.0f);
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
  for (std::size_t i = 0; i < numbers.size(); i += static_cast<std::size_t>(shape.numbers)) {
    const float* const x = numbers.data() + i;
    switch (format) {
      case WeightFormat::q8_0:
        quantise_q8_0(x, blocks);
        break;
      case WeightFormat::q4_0:
        quantise_centred(x, 4, blocks);
        break;
      case WeightFormat::q5_0:
        quantise_centred(x, 5, blocks);
        break;
      case WeightFormat::q4_k:
        quantise_q4_k(x, blocks);
        break;
      case WeightFormat::q6_k:
        quantise_q6_k(x, blocks);
        break;
      case WeightFormat::int4:
        quantise_int4(x, blocks);
        break;
      case WeightFormat::fp8:
        quantise_fp8(x, blocks);
        break;
      default:
        throw_failure(cat("weights are not quantised to ", name_of(format)));
    }
    blocks += shape.bytes;
  }
}

}  // namespace coppice
