// How a GPU of compute capability 9.0 keeps quantised weights: the file's numbers in the order in
// which lanes multiply them (packed_linear.h).
//
// Outputs go by sides of 8, inputs by parts of 64. A part of a side is
//
//   numbers  of 4 bits: [lane 32][half 2] words; of 8 bits: [lane 32][step 4] words
//   scales   [output 8][64 / group] bf16, rounded to nearest even; of E4M3 [output 8] f32
//   minima   the same, where the format has them
//
// and a side is its parts, one behind the other. Lane 4 g + t has of output g, of each step of 16
// inputs, 2 t and 2 t + 1 (low) and 2 t + 8 and 2 t + 9 (high). A word of 4-bit numbers has two
// steps, first to second: low, high, low, high; of each pair the first number in the lower 16 bits,
// pair i at bits 4 i of both halves. A word of 8-bit numbers has a step: bytes 0 and 2 are low,
// bytes 1 and 3 high.
//
//   weight = scale number + minimum, rounded to bf16 once; of E4M3 scale number, not rounded
//
// Numbers of 4 bits without minima are kept 8 too large. A group of 64 is of E4M3.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/device.h"

namespace coppice::cuda {

inline constexpr std::int64_t packed_side = 8;
inline constexpr std::int64_t packed_part = 64;

struct PackedLayout {
  std::int32_t bits = 4;    ///< of a number: 4 or 8
  std::int32_t group = 32;  ///< inputs that share a scale: 16, 32 or 64
  bool minima = false;

  bool operator==(const PackedLayout&) const = default;
  constexpr std::int32_t number_bytes() const {
    return static_cast<std::int32_t>(packed_side * packed_part) * bits / 8;
  }
  constexpr bool e4m3() const { return group == packed_part; }
  /// Returns the bytes of scales, and of minima.
  constexpr std::int32_t scale_bytes() const {
    return static_cast<std::int32_t>(packed_side * packed_part) / group * (e4m3() ? 4 : 2);
  }
  constexpr std::int32_t part_bytes() const {
    return number_bytes() + scale_bytes() * (minima ? 2 : 1);
  }
};

/// std::nullopt: these are not packed.
std::optional<PackedLayout> packed_layout(WeightFormat format);

/// Bytes of [outputs, in]; the last side may have outputs of zeros. `in` is a multiple of
/// packed_part.
std::int64_t packed_bytes(const PackedLayout& layout, std::int64_t outputs, std::int64_t in);

/// A part's bytes in that layout, made of the file's when they are read. They refer to `part`, and
/// set `non_finite` if a scale or minimum, or a weight of E4M3, is NaN or infinite.
HostBytes packed_bytes_of(const LinearPart& part, std::int64_t in, std::atomic<bool>& non_finite);

}  // namespace coppice::cuda
