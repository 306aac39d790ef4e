#pragma once

#include <cstdint>

namespace coppice::cuda {

/// Says when the library's codes for a product may be timed against one another
/// (library_products.h): tens of milliseconds for a pass's shapes, most of it loading code. The
/// first proposal, which has the same bits, runs until then.
struct ProductTiming {
  bool allowed = true;
  std::int64_t put_off = 0;  ///< products that were run while their codes were still to be timed
};

}  // namespace coppice::cuda
