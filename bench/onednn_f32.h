// oneDNN's products of f32 as the others' measure: weights packed as it likes best.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/workers.h"

namespace coppice::bench {

/// One matrix [out, in]. Each thread has a slice of the output features, packed by itself.
class OneDnnProduct {
 public:
  OneDnnProduct(const std::vector<float>& weights, std::int64_t out, std::int64_t in,
                cpu::Workers& workers);
  OneDnnProduct(OneDnnProduct&&) noexcept;
  ~OneDnnProduct();
  /// x [rows, in], y [rows, out]. The first call with a row count prepares code.
  void run(const float* x, std::int32_t rows, float* y);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::bench
