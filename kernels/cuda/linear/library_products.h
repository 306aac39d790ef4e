// Products of linear.h by cublasLt, each shape by the code that this card runs fastest.
//
// The library proposes several codes for a shape, and its first proposal is at times slow: of 160
// products of 48 to 1024 rows on an H200 it took 1.04 times the best on average, 1.8 times at
// worst. So with many rows a product of a shape is computed by several, which are timed: the first
// one, or where loading code and timing would hold up short work, a later one (ProductTiming).
// Clocks differ from run to run and results must not: only codes whose results equal those of the
// first proposal bit for bit are taken. These are the ones that divide the sums as it does; how
// they cut the results into tiles changes no bit.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/linear/product_timing.h"
#include "kernels/cuda/linear/weight_upload.h"

namespace coppice::cuda {

struct ProductShape {
  std::int64_t in = 0, out = 0;
  std::int32_t rows = 0;
  bool accumulate = false;
  bool bias = false;
  auto operator<=>(const ProductShape&) const = default;
};

/// As in linear.h; `bias` is null where the shape has none.
struct ProductOperands {
  const void* x;
  const void* weights;
  const float* bias;
  float* out;
};

class ProductProposals;

class LibraryProducts {
 public:
  /// `timing` and `proposals` outlive this.
  LibraryProducts(const Allocate& allocate, ProductTiming& timing, ProductProposals& proposals);
  ~LibraryProducts();

  /// False, and nothing is done, where the library has no code for the shape. May be captured. A
  /// shape of many rows whose codes were not timed yet has them timed, which waits for the stream,
  /// unless the call is captured or timing is not allowed.
  bool run(const ProductShape& shape, const ProductOperands& operands, cudaStream_t stream);

  /// Runs the code of a shape's first proposal on as few outputs as it takes, so that it is loaded.
  /// `memory` has bytes_to_load(shape), whatever is in it. Throws Error(failure) if that fails.
  void load_code(const ProductShape& shape, void* memory, cudaStream_t stream);
  static std::size_t bytes_to_load(const ProductShape& shape);

  /// Names the code that run() uses, or is empty if there is none (tests, diagnostics).
  std::string implementation(const ProductShape& shape, const float* bias);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cuda
