// Activations in blocks of 32 integers of 8 bits, as products with quantised weights take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/packed_format.h"

namespace coppice::cpu {

class Workers;

/// A group of kRows neighbouring rows.
template <int kRows>
struct RowGroup {
  std::int8_t numbers[kRows][group_inputs];
  float scales[kRows];
  /// Sums of the numbers, and of their first and last 16, with their signs turned.
  std::int32_t negated_sums[3][kRows];
  float scaled_sums[3][kRows];  ///< the sums times the scale
};

/// Where a row of a tile goes, group by group.
struct RowPlace {
  std::int8_t* numbers;
  float* scale;
  std::int32_t* negated_sums;
  float* scaled_sums;
  std::int64_t tile_rows;
};

/// Rows x [rows, in]: x = scale q, q from -127 to 127, rounded to the nearest, scale the largest
/// magnitude of 32 neighbours over 127. A value that is not finite makes its scale so, and what is
/// multiplied with it. Rows lie in tiles of most_tile_rows, the last one of what is left, a tile
/// group by group. Memory is kept from call to call.
class QuantisedRows {
 public:
  static constexpr std::int32_t most_tile_rows = 8;

  void assign(const float* x, std::int32_t rows, std::int64_t in, Workers& workers);

  std::int32_t rows() const { return rows_; }
  std::int64_t in() const { return in_; }
  std::int64_t groups() const { return in_ / group_inputs; }
  std::int32_t tile_rows(std::int32_t first) const {
    return rows_ - first < most_tile_rows ? rows_ - first : most_tile_rows;
  }
  /// Row groups of the tile that begins with row `first`, RowGroup<tile_rows(first)> each.
  const std::byte* tile(std::int32_t first) const {
    return data_.data() + first * groups() * static_cast<std::int64_t>(sizeof(RowGroup<1>));
  }

 private:
  std::int32_t rows_ = 0;
  std::int64_t in_ = 0;
  std::vector<std::byte> data_;
};

}  // namespace coppice::cpu
