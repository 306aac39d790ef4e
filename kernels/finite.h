// Whether stored weights are numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/device.h"

namespace coppice {

/// Whether an element's exponent is all ones (NaN or infinity). Elements may lie unaligned.
template <typename Bits>
bool has_non_finite(const std::byte* data, std::size_t count, Bits exponent) {
  // In blocks, so that the inner loop has no early exit and vectorises.
  constexpr std::size_t block = 4096;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t end = std::min(count, begin + block);
    Bits found = 0;
    for (std::size_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
      found = static_cast<Bits>(found | static_cast<Bits>((bits & exponent) == exponent));
    }
    if (found != 0) return true;
  }
  return false;
}

inline bool has_non_finite(std::span<const std::byte> values, DType dtype) {
  const std::byte* data = values.data();
  const std::size_t count = values.size() / size_of(dtype);
  switch (dtype) {
    case DType::f32:
      return has_non_finite<std::uint32_t>(data, count, 0x7f800000u);
    case DType::f16:
      return has_non_finite<std::uint16_t>(data, count, 0x7c00u);
    case DType::bf16:
      return has_non_finite<std::uint16_t>(data, count, 0x7f80u);
  }
  return false;
}

}  // namespace coppice
