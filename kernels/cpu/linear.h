// Matrix products with packed weights.
//
//   out[r, j] (+)= sum_i x[r, i] W[j, i] + bias[j]
//
//   x     [rows, in] of the compute type: f32, or bf16 with products summed in f32
//   W     [out, in] of any format. Computing in f32, they are kept in their own format and widened
//         as they are multiplied, which is exact (plain numbers in f32 where parts differ, and f16
//         where the processor does not widen it); computing in bf16 they are rounded to it once
//   bias  [out] f32 or none; added in f32
//   out   [rows, out] f32; its former value is added when `accumulate`
// With integer products, quantised weights of whole numbers (all but fp8) are multiplied by x
// rounded to blocks of 8 bits (quantised_rows.h) instead. In f32 and with integers a row's result
// does not depend on the other rows, their number, or the threads. x and out do not overlap. In
// bf16 they have room for padded_row_count(rows) rows: oneDNN runs a limited number of row counts,
// so that a changing tree meets code that is made already.
#pragma once

#include <memory>
#include <span>

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

/// The row count that `rows` rows are computed as in bf16: 1 to 8 exactly, then steps of at most a
/// quarter up to 128, then multiples of 32.
std::int32_t padded_row_count(std::int32_t rows);

/// Products of one device, in its compute type. Not for several threads at a time.
class LinearEngine {
 public:
  LinearEngine(DType compute, bool integer_products, Workers& workers);
  ~LinearEngine();

  /// See Device::pack_linear and Device::linear.
  std::unique_ptr<LinearWeights> pack(std::span<const LinearPart> parts, std::int64_t in_features,
                                      std::span<const float> bias, std::int32_t max_rows);
  void run(const LinearWeights& weights, const void* x, std::int32_t rows, float* out,
           bool accumulate);

  /// Row `row` of packed weights as floats, times `scale`; of quantised weights only.
  void embed_row(const LinearWeights& weights, std::int64_t row, float scale, float* out) const;

  /// "own", or oneDNN's name of the code that runs `rows` rows (tests, diagnostics).
  std::string implementation(const LinearWeights& weights, std::int32_t rows);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cpu
