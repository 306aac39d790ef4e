#include "read_bandwidth.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/error.h"

namespace coppice::bench {
namespace {

using cuda::check;

// Four loads in flight for each thread; their sum is stored where it cannot be, so that the
// compiler keeps them.
__global__ void read(const uint4* data, std::size_t count, unsigned* out) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned sum = 0;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = data[i], b = data[i + stride], c = data[i + 2 * stride],
                d = data[i + 3 * stride];
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^
           d.z ^ d.w;
  }
  for (; i < count; i += stride) sum += data[i].x;
  if (sum == 0x12345678u) *out = sum;
}

}  // namespace

double read_bandwidth() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 0.0;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  const std::size_t bytes = std::min(std::size_t{4} << 30, free / 4) / 4096 * 4096;
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
        "multiprocessor count");
  uint4* data = nullptr;
  unsigned* out = nullptr;
  check(cudaMalloc(&data, bytes), "allocating memory to read");
  check(cudaMalloc(&out, sizeof(unsigned)), "allocating memory to read");
  check(cudaMemset(data, 0x5b, bytes), "filling memory to read");
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start), "making an event");
  check(cudaEventCreate(&stop), "making an event");
  std::vector<float> times;
  for (int repetition = 0; repetition < 12; ++repetition) {
    check(cudaEventRecord(start, nullptr), "timing");
    read<<<multiprocessors * 8, 512, 0, nullptr>>>(data, bytes / sizeof(uint4), out);
    cuda::check_launch("read");
    check(cudaEventRecord(stop, nullptr), "timing");
    check(cudaEventSynchronize(stop), "timing");
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, start, stop), "timing");
    if (repetition >= 2) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaFree(out);
  cudaFree(data);
  return static_cast<double>(bytes) / (static_cast<double>(times[times.size() / 2]) * 1e-3);
}

}  // namespace coppice::bench
