#pragma once

namespace coppice::bench {

/// Bytes per second at which page-locked host memory is copied to the GPU (median of seven copies
/// of 1 GiB); 0 without a GPU.
double copy_rate();

}  // namespace coppice::bench
