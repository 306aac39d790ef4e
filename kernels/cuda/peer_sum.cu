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

__device__ bool given_up(const PeerSum& peers, int tries) {
  return tries % 4096 == 0 && *static_cast<const volatile std::uint32_t*>(peers.given_up) != 0;
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
      if (given_up(peers, tries)) break;
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

/// Two numbers, each in 8 bytes with the sum's count: these come as a whole.
__device__ void send_line(uint4* to, float a, float b, std::uint32_t sum) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %2};"
               :
               : "l"(to), "r"(__float_as_uint(a)), "r"(sum), "r"(__float_as_uint(b))
               : "memory");
}
__device__ uint4 line_at(const uint4* from) {
  uint4 line;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
               : "l"(from)
               : "memory");
  return line;
}

__global__ void __launch_bounds__(PeerSum::line_threads)
    peer_sum_by_lines(const PeerSum peers, float4* values, int count) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const auto block = static_cast<int>(blockIdx.x);
  const int i = block * PeerSum::line_threads + static_cast<int>(threadIdx.x);
  const std::uint32_t sum = peers.done[block] + 1;
  constexpr int lines = PeerSum::line_blocks * PeerSum::line_threads;
  const auto place = [&](int gpu, int from) {
    return peers.lines[gpu] + (std::int64_t{sum & 1} * peers.ranks + from) * 2 * lines + i;
  };
  if (i < count) {
    const float4 own = values[i];
    for (int gpu = 0; gpu < peers.ranks; ++gpu) {
      if (gpu == peers.rank) continue;
      uint4* const to = place(gpu, peers.rank);
      send_line(to, own.x, own.y, sum);
      send_line(to + lines, own.z, own.w, sum);
    }
    float4 total{};
    for (int rank = 0; rank < peers.ranks; ++rank) {
      float4 part = own;
      if (rank != peers.rank) {
        const uint4* const from = place(peers.rank, rank);
        uint4 low, high;
        int tries = 1;
        do {
          low = line_at(from);
          high = line_at(from + lines);
        } while ((low.y != sum || low.w != sum || high.y != sum || high.w != sum) &&
                 !given_up(peers, tries++));
        part = {__uint_as_float(low.x), __uint_as_float(low.z), __uint_as_float(high.x),
                __uint_as_float(high.z)};
      }
      total = rank == 0
                  ? part
                  : float4{total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    values[i] = total;
  }
  __syncthreads();  // all have read the count
  if (threadIdx.x == 0) peers.done[block] = sum;
}

}  // namespace

void peer_sum(const PeerSum& peers, float* values, std::int64_t count, cudaStream_t stream) {
  const auto vectors = static_cast<int>(count / 4);
  if (count <= PeerSum::most_in_lines) {
    constexpr int in_block = PeerSum::line_threads;
    launch_early(peer_sum_by_lines,
                 dim3(static_cast<unsigned>((vectors + in_block - 1) / in_block)), in_block, 0,
                 stream, peers, reinterpret_cast<float4*>(values), vectors);
    return check_launch("a sum over GPUs by lines");
  }
  const int blocks = std::clamp((vectors + threads - 1) / threads, 1, int{PeerSum::blocks});
  launch_early(peer_sum_kernel, dim3(static_cast<unsigned>(blocks)), threads, 0, stream, peers,
               reinterpret_cast<float4*>(values), vectors, (vectors + blocks - 1) / blocks);
  check_launch("a sum over GPUs");
}

}  // namespace coppice::cuda
