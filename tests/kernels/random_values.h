// Random operands, the same in every run.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/token_tree.h"

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

/// f16 nearest to x, ties to even, for |x| < 65504; by the definition, in steps of the result.
inline std::uint16_t nearest_f16(float x) {
  const double size = std::abs(static_cast<double>(x));
  int exponent = 0;
  (void)std::frexp(size, &exponent);
  exponent = std::max(exponent, -13);  // below: subnormal, in steps of 2^-24
  const double steps = std::nearbyint(std::ldexp(size, 11 - exponent));
  // 1024 steps on are the next exponent, and normal numbers have 1024 of them before.
  const int bits = static_cast<int>(steps) + (exponent + 13) * 1024;
  return static_cast<std::uint16_t>((std::signbit(x) ? 0x8000 : 0) | bits);
}

inline float widened_f16(std::uint16_t f16) {
  const int exponent = f16 >> 10 & 31, fraction = f16 & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((f16 & 0x8000) != 0 ? -size : size);
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
