// Activations in blocks of 32 integers of 8 bits, as products with quantised weights take them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/packed_format.h"

namespace coppice::cpu {

class Workers;

/// Rows x [rows, in]: x = scale q, q from -127 to 127, rounded to the nearest, scale the largest
/// magnitude of 32 neighbours over 127. A value that is not finite makes its scale so, and what is
/// multiplied with it. Memory is kept from call to call.
class QuantisedRows {
 public:
  void assign(const float* x, std::int32_t rows, std::int64_t in, Workers& workers);

  std::int64_t in() const { return in_; }
  std::int64_t groups() const { return in_ / group_inputs; }
  const std::int8_t* numbers() const { return numbers_.data(); }  ///< [rows, in]
  const float* scales() const { return scales_.data(); }          ///< [rows, groups]
  /// Sums of the numbers of 16 inputs, [rows, 2 groups].
  const std::int32_t* half_sums() const { return half_sums_.data(); }

 private:
  std::int64_t in_ = 0;
  std::vector<std::int8_t> numbers_;
  std::vector<float> scales_;
  std::vector<std::int32_t> half_sums_;
};

}  // namespace coppice::cpu
