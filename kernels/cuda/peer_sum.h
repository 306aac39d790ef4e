// Sums over GPUs of one host that write to each other's memory. Each sends its numbers to all
// others at once and adds what has come by rank, so a sum takes one way between GPUs, about half
// the time that NCCL takes for the few numbers of a step's rows; and the next product's weights
// arrive meanwhile, as behind other kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::cuda {

/// What a GPU's part of the sums works with; all GPUs' memory is as far as `ranks`.
///
/// A block of the kernel owns a share of the numbers and, in each GPU's inbox, a place for them by
/// rank, twice: sums use the two in turn. (1) A GPU begins its block's sum e + 2 only after it has
/// seen all others begin e + 1, which they do after e. So nobody's numbers of e, still being read,
/// are written over. (2) All GPUs queue the same sums in the same order, so a block's count of them
/// is the same on all, whoever records or plays them.
struct PeerSum {
  static constexpr int most_ranks = 8;
  static constexpr std::int64_t blocks = 128, block_values = 8192;
  /// That a GPU sends for one sum.
  static constexpr std::int64_t most_sent = blocks * block_values;

  /// Sums of no more numbers than a thread for each four take them by lines: 16 bytes of two
  /// numbers, each with the sum's count beside it, so that what comes says itself that it has come.
  /// A mark behind them would wait for them to have arrived.
  static constexpr int line_threads = 256, line_blocks = 64;
  static constexpr std::int64_t most_in_lines = line_blocks * line_threads * 4;

  int rank = 0, ranks = 1;
  float* inbox[most_ranks];            ///< of each GPU: [2][ranks][blocks][block_values]
  uint4* lines[most_ranks];            ///< of each GPU: [2][ranks][2][line_blocks * line_threads]
  std::uint32_t* arrived[most_ranks];  ///< of each GPU: [ranks][blocks], sums whose numbers came
  std::uint32_t* done;                 ///< own: [blocks], sums
  const std::uint32_t* given_up;       ///< on the host: not 0: nobody waits any more

  static std::int64_t inbox_values(int ranks) { return 2 * ranks * most_sent; }
  static std::int64_t inbox_lines(int ranks) { return 4 * ranks * line_blocks * line_threads; }
  /// Whether it takes a sum of so many numbers.
  static bool takes(const float* values, std::int64_t count, int ranks) {
    return count % 4 == 0 && count * (ranks - 1) <= most_sent &&
           reinterpret_cast<std::uintptr_t>(values) % 16 == 0;
  }
};

/// As Communicator::sum().
void peer_sum(const PeerSum& peers, float* values, std::int64_t count, cudaStream_t stream);

}  // namespace coppice::cuda
