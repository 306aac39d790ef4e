// Operands of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace coppice::bench {

/// bf16 between 1/128 and 2 in size, with both signs; powers of two would flatter nothing, but
/// zeros would.
inline std::vector<std::uint16_t> random_bf16(std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    value = static_cast<std::uint16_t>((bits & 0x8000u) | (0x3c00u + (bits >> 16 & 0x3ffu)));
  }
  return values;
}

}  // namespace coppice::bench
