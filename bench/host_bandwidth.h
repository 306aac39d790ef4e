// What this machine's memory gives to the threads that a model uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/stopwatch.h"
#include "kernels/cpu/workers.h"

namespace coppice::bench {

/// Bytes per second of reading 1 GiB, each thread its share, as 64-bit sums: the best of
/// `repetitions`.
inline double host_read_bandwidth(int threads, int repetitions = 7) {
  constexpr std::int64_t words = std::int64_t{1} << 27, chunk = 1 << 17, lanes = 32;
  const std::vector<std::uint64_t> memory(static_cast<std::size_t>(words), 1);
  cpu::Workers workers(threads);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(words / chunk));
  double best = 0.0;
  for (int i = 0; i < repetitions; ++i) {
    const double start = now_seconds();
    workers.run(words / chunk, threads, [&](std::int64_t item, int) {
      const std::uint64_t* at = memory.data() + item * chunk;
      std::uint64_t lane[lanes] = {};
      for (std::int64_t w = 0; w < chunk; w += lanes) {
        __builtin_prefetch(at + w + 512);
        __builtin_prefetch(at + w + 520);
        __builtin_prefetch(at + w + 528);
        __builtin_prefetch(at + w + 536);
        for (std::int64_t j = 0; j < lanes; ++j) lane[j] += at[w + j];
      }
      std::uint64_t sum = 0;
      for (const std::uint64_t value : lane) sum += value;
      sums[static_cast<std::size_t>(item)] = sum;
    });
    const double seconds = now_seconds() - start;
    for (const std::uint64_t sum : sums) {
      if (sum != static_cast<std::uint64_t>(chunk)) return 0.0;  // never: the sums are used
    }
    best = std::max(best, static_cast<double>(words) * 8.0 / seconds);
  }
  return best;
}

}  // namespace coppice::bench
