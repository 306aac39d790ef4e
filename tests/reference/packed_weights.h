// Weights out of the layout that a GPU multiplies (kernels/cuda/linear/packed_layout.h), by its
// description.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/block_fields.h"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/random_values.h"

namespace coppice::testing {

/// weight = scale number + minimum, rounded but for E4M3.
struct PackedWeight {
  float scale, number, minimum;
  bool rounds = true;
  double value() const {
    const double exact = static_cast<double>(scale) * number + minimum;  // it is
    if (!rounds) return exact;
    // On the way to bf16, to float with the last bit set where it is inexact.
    auto near = static_cast<float>(exact);
    if (static_cast<double>(near) != exact) {
      if (std::abs(static_cast<double>(near)) > std::abs(exact)) near = std::nextafter(near, 0.0f);
      near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) | 1u);
    }
    return widened(nearest_bf16(near));
  }
};

inline PackedWeight packed_weight(const cuda::PackedLayout& layout,
                                  const std::vector<std::byte>& bytes, std::int64_t output,
                                  std::int64_t input, std::int64_t in) {
  const std::int64_t parts = in / 64, side = output / 8, g = output % 8;
  const auto part = static_cast<std::size_t>((side * parts + input / 64) * layout.part_bytes());
  const std::int64_t step = input % 64 / 16, k = input % 16;
  const std::int64_t t = k % 8 / 2, lane = 4 * g + t, high = k / 8, second = k % 2;
  const auto word_at = [&](std::int64_t place) {
    std::uint32_t word;
    std::memcpy(&word, &bytes[part + static_cast<std::size_t>(4 * place)], sizeof word);
    return word;
  };
  const auto factor_at = [&](std::int64_t place) {
    std::uint16_t bits;
    std::memcpy(&bits, &bytes[part + static_cast<std::size_t>(place)], sizeof bits);
    return widened(bits);
  };
  float number;
  if (layout.bits == 4) {
    const std::uint32_t word = word_at(lane * 2 + step / 2);
    number = static_cast<float>(word >> (4 * (step % 2 * 2 + high) + 16 * second) & 15u) -
             (layout.minima ? 0.0f : 8.0f);
  } else {
    const std::uint32_t word = word_at(lane * 4 + step);
    number = static_cast<float>(static_cast<std::int8_t>(word >> (8 * (2 * second + high)) & 255u));
  }
  if (layout.e4m3()) {
    const std::uint32_t bits = word_at(lane * 4 + step) >> 8 * (2 * second + high);
    number = block_fields::value_of_e4m3(static_cast<std::byte>(bits & 255u));
    return {std::bit_cast<float>(word_at(layout.number_bytes() / 4 + g)), number, 0.0f, false};
  }
  const std::int64_t groups = 64 / layout.group;
  const std::int64_t factor = layout.number_bytes() + 2 * (g * groups + input % 64 / layout.group);
  return {factor_at(factor), number,
          layout.minima ? factor_at(factor + layout.scale_bytes()) : 0.0f};
}

inline std::vector<std::byte> packed_bytes_in(const LinearPart& part, std::int64_t in) {
  const cuda::PackedLayout layout = cuda::packed_layout(part.format).value();
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(cuda::packed_bytes(layout, part.out_features, in)));
  std::atomic<bool> non_finite{false};
  cuda::packed_bytes_of(part, in, non_finite).read(0, bytes);
  return bytes;
}

}  // namespace coppice::testing
