// Random operands, the same in every run.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/token_tree.h"
#include "kernels/device.h"

namespace coppice::testing {

inline std::vector<float> random_floats(std::int64_t n, std::mt19937& random, float bound = 1.0f) {
  std::uniform_real_distribution<float> uniform(-bound, bound);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

/// bf16 nearest to x, ties to even, by the definition: of the two neighbours the nearer one.
inline std::uint16_t nearest_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t rest = bits & 0xffffu;
  const bool up = rest > 0x8000u || (rest == 0x8000u && (below & 1u) != 0);
  return static_cast<std::uint16_t>(below + (up ? 1 : 0));
}

inline float widened(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

/// What the bits of an f16 mean.
inline float widened_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000u) != 0 ? -magnitude : magnitude);
}

/// f16 nearest to x, ties to even; finite values beyond the largest go to that.
inline std::uint16_t nearest_f16(float x) {
  const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | 0x7c00u);
  const double magnitude = std::abs(static_cast<double>(x));
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -14, -14);
  // Counted in the last place of its own binade; a carry into the next one is right as it is.
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const unsigned bits = steps + (static_cast<unsigned>(exponent + 14) << 10);
  return static_cast<std::uint16_t>(sign | std::min(bits, 0x7bffu));
}

/// 16-bit storage of `type`: of f32 values, and what it holds.
inline std::vector<std::uint16_t> stored_as(DType type, const std::vector<float>& values) {
  std::vector<std::uint16_t> stored;
  for (const float v : values) {
    stored.push_back(type == DType::bf16 ? nearest_bf16(v) : nearest_f16(v));
  }
  return stored;
}
inline float stored_value(DType type, std::uint16_t bits) {
  return type == DType::bf16 ? widened(bits) : widened_f16(bits);
}

/// A tree of `nodes` nodes whose parents are drawn at random: `reach` 1 gives chains, large
/// values bushes.
inline TokenTree random_tree(std::int32_t nodes, std::int32_t reach, std::mt19937& random) {
  TokenTree tree;
  tree.reset(0);
  std::vector<std::int32_t> children(static_cast<std::size_t>(nodes), 0);
  for (std::int32_t i = 1; i < nodes; ++i) {
    const std::int32_t first = std::max(0, i - reach);
    const std::int32_t parent = std::uniform_int_distribution<std::int32_t>(first, i - 1)(random);
    tree.add(parent, i, children[static_cast<std::size_t>(parent)]++, 0.5f, 0.5);
  }
  return tree;
}

}  // namespace coppice::testing
