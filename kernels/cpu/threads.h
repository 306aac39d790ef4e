// OpenMP, reduced to what the CPU operations need.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace coppice::cpu {

/// Processors that this process may run on.
int usable_threads();

/// The share [begin, end) of `items` that worker `index` of `workers` takes.
struct Share {
  std::int64_t begin, end;
};
inline Share share_of(std::int64_t items, int index, int workers) {
  return {items * index / workers, items * (index + 1) / workers};
}

/// Calls body(index, workers) once for every worker of a team of at most `threads`.
template <typename Body>
void parallel(int threads, const Body& body) {
  if (threads <= 1) {
    body(0, 1);
    return;
  }
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

/// Threads that `work` units are worth when a thread should get at least `grain` of them.
inline int worth_threads(std::int64_t work, std::int64_t grain, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(work / grain, 1, threads));
}

/// Splits [0, rows) over threads, each at least `grain` elements of `row_elements` each:
/// body(begin, end).
template <typename Body>
void parallel_rows(std::int64_t rows, std::int64_t row_elements, std::int64_t grain, int threads,
                   const Body& body) {
  parallel(worth_threads(rows * row_elements, grain, threads), [&](int index, int workers) {
    const Share share = share_of(rows, index, workers);
    if (share.begin < share.end) body(share.begin, share.end);
  });
}

}  // namespace coppice::cpu
