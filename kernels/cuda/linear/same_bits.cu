#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/same_bits.h"

namespace coppice::cuda {
namespace {

constexpr unsigned blocks = 1024, threads = 256;

__global__ void find_difference_kernel(const std::uint32_t* a, const std::uint32_t* b,
                                       std::int64_t count, std::int32_t* differs) {
  bool seen = false;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count;
       i += std::int64_t{blocks} * threads) {
    seen |= a[i] != b[i];
  }
  // The same from whoever comes: the order does not matter.
  if (seen) atomicExch(differs, 1);
}

}  // namespace

void find_difference(const float* a, const float* b, std::int64_t count, std::int32_t* differs,
                     cudaStream_t stream) {
  find_difference_kernel<<<blocks, threads, 0, stream>>>(reinterpret_cast<const std::uint32_t*>(a),
                                                         reinterpret_cast<const std::uint32_t*>(b),
                                                         count, differs);
  check_launch("find_difference");
}

}  // namespace coppice::cuda
