// Times of recorded work on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "median.h"

namespace coppice::bench {

struct Timing {
  double median_us = 0.0;
  double low_us = 0.0;   ///< 10% of the samples take at most this
  double high_us = 0.0;  ///< 90%
  /// Median where all input sets follow each other in one recording, as the layers of a pass do:
  /// without the launch of a recording per layer.
  double in_pass_us = 0.0;

  /// Distance of high and low as a share of the median.
  double spread() const { return median_us > 0.0 ? (high_us - low_us) / median_us : 0.0; }
};

/// Records queue(set) for every set as a graph of its own and replays them in turn. A sample is
/// the time between two events around a batch of replays, per replay; the device is kept busy
/// while the host launches a batch, so that launching is no part of it. Warms the device up before.
/// `samples` is made odd.
Timing time_replays(std::int32_t sets, std::int32_t samples,
                    const std::function<void(std::int32_t set)>& queue, cudaStream_t stream);

/// Median of `samples` times of queue() between events, after warming up, in seconds.
double median_seconds(std::int32_t samples, const std::function<void()>& queue,
                      cudaStream_t stream);

/// Records `queue` and replays the recording once; waits for it.
void replay_once(const std::function<void()>& queue, cudaStream_t stream);

}  // namespace coppice::bench
