// Clusters of blocks, which read one another's shared memory (PTX; compute capability 9.0).
#pragma once

#include <cstdint>

namespace coppice::cuda {

/// Two halves of a barrier of all the cluster's threads: what they wrote before the first is
/// visible after the second.
__device__ inline void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}

/// The address, for the functions below, of what lies at `address` in this block's shared memory
/// in that of the cluster's block `rank`.
__device__ inline std::uint32_t address_in_block(std::uint32_t address, std::int32_t rank) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
#else
  return address;
#endif
}
__device__ inline float2 load_pair_in_block(std::uint32_t address) {
  float2 value{0.0f, 0.0f};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(address)
               : "memory");
#endif
  return value;
}
__device__ inline float4 load_four_in_block(std::uint32_t address) {
  float4 value{0.0f, 0.0f, 0.0f, 0.0f};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address)
               : "memory");
#endif
  return value;
}

}  // namespace coppice::cuda
