// What the library proposes for products, asked once for a card: asking takes some 0.3 ms a shape,
// which a pass of a new row count would wait for, and the thread that loads code asks beforehand.
#pragma once

#include <cublasLt.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/linear/library_products.h"

namespace coppice::cuda {

/// For products of one card, by any threads.
class ProductProposals {
 public:
  struct Proposal {
    /// The library's first choice first. None: it has no code for the shape.
    std::vector<cublasLtMatmulHeuristicResult_t> algorithms;
    bool bias_in_epilogue = false;
  };

  std::optional<Proposal> find(const ProductShape& shape) const {
    const std::lock_guard lock(mutex_);
    const auto at = by_shape_.find(shape);
    return at == by_shape_.end() ? std::nullopt : std::optional(at->second);
  }
  void keep(const ProductShape& shape, Proposal proposal) {
    const std::lock_guard lock(mutex_);
    by_shape_.insert_or_assign(shape, std::move(proposal));
  }

 private:
  mutable std::mutex mutex_;
  std::map<ProductShape, Proposal> by_shape_;
};

}  // namespace coppice::cuda
