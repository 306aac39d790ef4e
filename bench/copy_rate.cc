#include "copy_rate.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/stopwatch.h"

namespace coppice::bench {

double copy_rate() {
  constexpr std::size_t bytes = std::size_t{1} << 30;
  void *host = nullptr, *device = nullptr;
  std::array<double, 7> seconds{};
  bool copied =
      cudaMallocHost(&host, bytes) == cudaSuccess && cudaMalloc(&device, bytes) == cudaSuccess;
  for (std::size_t i = 0; copied && i <= seconds.size(); ++i) {
    const double start = now_seconds();
    copied = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, nullptr) == cudaSuccess &&
             cudaStreamSynchronize(nullptr) == cudaSuccess;
    if (i > 0) seconds[i - 1] = now_seconds() - start;  // the first one warms up
  }
  (void)cudaFree(device);
  (void)cudaFreeHost(host);
  (void)cudaGetLastError();
  if (!copied) return 0.0;
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return static_cast<double>(bytes) / seconds[3];
}

}  // namespace coppice::bench
