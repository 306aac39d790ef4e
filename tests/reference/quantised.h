// Random weights in quantised formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/block_fields.h"
#include "kernels/weight_format.h"

namespace coppice::testing {

inline std::vector<WeightFormat> quantised_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat format : all_weight_formats) {
    if (!dtype_of(format)) formats.push_back(format);
  }
  return formats;
}

/// Any bits, but for scales and minima: finite, from 2^-10 to 2^-6, of either sign; of fp8 no NaN.
inline std::vector<std::byte> random_blocks(WeightFormat format, std::uint64_t numbers,
                                            std::mt19937& random) {
  std::vector<std::byte> blocks(bytes_of(format, numbers));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 255u);
  const auto size = static_cast<std::size_t>(block_shape(format).bytes);
  for (std::size_t block = 0; block < blocks.size(); block += size) {
    const std::byte* const d = block_fields::d_of(format, &blocks[block]);
    const auto at = static_cast<std::size_t>(d - blocks.data());
    if (format == WeightFormat::fp8) {
      // 16 bits are the upper half of an f32's.
      const unsigned exponent = 127 - 10 + random() % 4;
      std::byte *const upper = &blocks[at + 3], *const lower = &blocks[at + 2];
      *upper = (*upper & std::byte{0x80}) | static_cast<std::byte>(exponent >> 1);
      *lower = (*lower & std::byte{0x7f}) | static_cast<std::byte>((exponent & 1) << 7);
      for (std::size_t i = block + 4; i < block + size; ++i) {
        if ((blocks[i] & std::byte{0x7f}) == std::byte{0x7f}) blocks[i] ^= std::byte{1};
      }
      continue;
    }
    for (std::size_t half = 0; half < (block_fields::has_stored_minimum(format) ? 2u : 1u);
         ++half) {
      std::byte& upper = blocks[at + 2 * half + 1];
      const unsigned exponent = 5 + random() % 4;
      upper = (upper & std::byte{0x83}) | static_cast<std::byte>(exponent << 2);
    }
  }
  return blocks;
}

}  // namespace coppice::testing
