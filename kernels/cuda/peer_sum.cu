#include <algorithm>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/peer_sum.h"

namespace coppice::cuda {
namespace {

constexpr int threads = 256;

__device__ void tell(std::uint32_t* mark, std::uint32_t sum) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(mark), "r"(sum) : "memory");
}
__device__ std::uint32_t heard(const std::uint32_t* mark) {
  std::uint32_t sum = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(sum) : "l"(mark) : "memory");
  return sum;
}

__global__ void __launch_bounds__(threads)
    peer_sum_kernel(const PeerSum peers, float4* values, int count, int share) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const int block = static_cast<int>(blockIdx.x);
  const int begin = block * share, end = min(begin + share, count);
  const std::uint32_t sum = peers.done[block] + 1;
  const auto place = [&](int gpu, int from) {
    const std::int64_t row = (std::int64_t{sum & 1} * peers.ranks + from) * PeerSum::blocks + block;
    return reinterpret_cast<float4*>(peers.inbox[gpu] + row * PeerSum::block_values);
  };
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += threads) {
    const float4 own = values[i];
    for (int gpu = 0; gpu < peers.ranks; ++gpu) {
      if (gpu != peers.rank) place(gpu, peers.rank)[i - begin] = own;
    }
  }
  __threadfence_system();
  __syncthreads();
  const int other = static_cast<int>(threadIdx.x);
  if (other < peers.ranks && other != peers.rank) {
    tell(&peers.arrived[other][peers.rank * PeerSum::blocks + block], sum);
    const std::uint32_t* const mark = &peers.arrived[peers.rank][other * PeerSum::blocks + block];
    // Counts may wrap around.
    for (int tries = 1; static_cast<std::int32_t>(heard(mark) - sum) < 0; ++tries) {
      if (tries % 4096 == 0 && *static_cast<const volatile std::uint32_t*>(peers.given_up) != 0) {
        break;
      }
    }
  }
  __syncthreads();
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += threads) {
    const float4 own = values[i];
    float4 total{};
    for (int rank = 0; rank < peers.ranks; ++rank) {
      const float4 part = rank == peers.rank ? own : __ldcg(place(peers.rank, rank) + (i - begin));
      total = rank == 0
                  ? part
                  : float4{total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    values[i] = total;
  }
  if (threadIdx.x == 0) peers.done[block] = sum;
}

}  // namespace

void peer_sum(const PeerSum& peers, float* values, std::int64_t count, cudaStream_t stream) {
  const auto vectors = static_cast<int>(count / 4);
  const int blocks = std::clamp((vectors + threads - 1) / threads, 1, int{PeerSum::blocks});
  launch_early(peer_sum_kernel, dim3(static_cast<unsigned>(blocks)), threads, 0, stream, peers,
               reinterpret_cast<float4*>(values), vectors, (vectors + blocks - 1) / blocks);
  check_launch("a sum over GPUs");
}

}  // namespace coppice::cuda
