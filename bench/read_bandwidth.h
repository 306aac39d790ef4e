#pragma once

namespace coppice::bench {

/// Bytes per second at which the GPU reads memory far larger than its cache (median of ten plain
/// 16-byte reads of 4 GiB, or of a quarter of what is free); 0 without a GPU.
double read_bandwidth();

}  // namespace coppice::bench
