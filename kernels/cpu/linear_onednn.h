// oneDNN's products of bf16, for more rows than the processor's dot instruction streams best.
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu/weight_blocks.h"

namespace coppice::cpu {

/// Prepared code by shape and row count. Not for several threads at a time.
class OneDnnProducts {
 public:
  explicit OneDnnProducts(Workers& workers);
  ~OneDnnProducts();

  /// Up to this many rows multiply_bf16 serves products of these weights better.
  std::int32_t most_streamed_rows(const WeightBlocks& weights, bool bias);
  /// Runs padded_row_count(rows) rows. Throws Error(failure) if oneDNN cannot.
  void run(const LinearProduct& product);
  /// oneDNN's name of the code that runs `rows` rows.
  std::string implementation(const WeightBlocks& weights, bool bias, std::int32_t rows);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cpu
