#include "cuda/late_writer.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"

namespace coppice::testing {
namespace {

constexpr int threads = 256;

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__device__ void copy(const LateCopy& what) {
  const auto* from = static_cast<const std::uint32_t*>(what.from);
  auto* to = static_cast<std::uint32_t*>(what.to);
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  for (std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < what.bytes / 4;
       i += stride) {
    to[i] = from[i];
  }
}

__global__ void wait_and_copy(LateCopy queries, LateCopy keys, LateCopy values,
                              std::uint64_t delay) {
  cuda::let_next_kernel_begin();
  const std::uint64_t start = nanoseconds();
  while (nanoseconds() - start < delay) __nanosleep(500);
  copy(queries);
  copy(keys);
  copy(values);
}

}  // namespace

void write_late(const LateCopy& queries, const LateCopy& keys, const LateCopy& values,
                double delay_us, cudaStream_t stream) {
  wait_and_copy<<<64, threads, 0, stream>>>(queries, keys, values,
                                            static_cast<std::uint64_t>(1e3 * delay_us));
  cuda::check_launch("wait_and_copy");
}

}  // namespace coppice::testing
