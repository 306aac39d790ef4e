// How the time of a launch of the Hopper kernel is spent.
#pragma once

#include <array>

#include "input_sets.h"
#include "kernels/cuda/attention/hopper_phases.h"
#include "library_attention.h"

namespace coppice::bench {

/// Microseconds from the beginning of a launch's first block to when blocks got to a phase: half
/// of them, and the last. Medians over launches that follow each other as in a pass.
struct PhaseTimes {
  double before_us = 0.0;  ///< from the former launch's end to the first block's beginning
  double end_us = 0.0;
  std::array<double, cuda::hopper::phases> middle_us{}, last_us{};

  /// Until half of the blocks have keys to multiply, the launch included.
  double start_us() const;
  /// From then until the last block has its results.
  double tiles_us() const;
  /// From then to the end: partial results stored and joined.
  double exchange_us() const;
};

/// For an attention that takes ranges.
PhaseTimes phase_times(const InputSets& inputs, LibraryAttention& attention, std::int32_t blocks,
                       cudaStream_t stream);

}  // namespace coppice::bench
