// PTX of asynchronous copies into shared memory, and of the barriers that tell when they have
// landed (compute capability 9.0 and later).
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_tiles.cuh"

namespace coppice::cuda::hopper {

using flatten::all_lanes;
using flatten::shared_address;

// --- barriers ---------------------------------------------------------------------------------

__device__ inline void init_barrier(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
/// After init_barrier(), by the thread that did it: for the copy engine.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(shared_address(barrier))
               : "memory");
}
/// Arrives once this thread's copies so far have landed.
__device__ inline void arrive_after_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
               :
               : "r"(shared_address(barrier))
               : "memory");
}
/// Waits until the phase of this parity has ended; the phase before the first has parity 1.
__device__ inline void wait(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}"
      :
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
}
/// A hardware barrier of the block; `threads` counts those that wait and those that only arrive.
__device__ inline void block_barrier_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}
__device__ inline void block_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

// --- copies -----------------------------------------------------------------------------------

/// Starts copying 16 bytes.
__device__ inline void copy_vector(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(shared), "l"(__cvta_generic_to_global(global))
               : "memory");
}
/// Starts copying 16 bytes, or clearing them where not `valid`.
__device__ inline void copy_or_clear(std::uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}

/// Announces bytes of bulk copies to the barrier's current phase.
__device__ inline void expect_bytes(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}
/// True in one lane, always the same one. To be called by whole warps.
__device__ inline bool elect_lane() {
  std::uint32_t elected;
  asm volatile("{ .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p; }"
               : "=r"(elected));
  return elected != 0;
}
/// Starts the copy of a box of `map` to shared memory; its bytes count for the barrier.
__device__ inline void copy_box(std::uint32_t shared, const CUtensorMap& map, int column, int row,
                                std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(shared), "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
/// Likewise of three dimensions.
__device__ inline void copy_box(std::uint32_t shared, const CUtensorMap& map, int inner, int middle,
                                int outer, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(shared), "l"(&map), "r"(inner), "r"(middle), "r"(outer), "r"(shared_address(barrier))
      : "memory");
}
/// Likewise of four.
__device__ inline void copy_box(std::uint32_t shared, const CUtensorMap& map, int c0, int c1,
                                int c2, int c3, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];"
      :
      : "r"(shared), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(barrier))
      : "memory");
}

/// For what is read once: the L2 cache had better keep other things.
__device__ inline std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// copy_box() of as many dimensions as there are coordinates, the innermost first.
__device__ inline void copy_box_once(std::uint32_t shared, const CUtensorMap& map,
                                     std::uint64_t* barrier, std::uint64_t policy, int c0, int c1,
                                     int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
      :
      : "r"(shared), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
__device__ inline void copy_box_once(std::uint32_t shared, const CUtensorMap& map,
                                     std::uint64_t* barrier, std::uint64_t policy, int c0, int c1,
                                     int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
      :
      : "r"(shared), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(barrier)),
        "l"(policy)
      : "memory");
}
__device__ inline void copy_box_once(std::uint32_t shared, const CUtensorMap& map,
                                     std::uint64_t* barrier, std::uint64_t policy, int c0, int c1,
                                     int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
      :
      : "r"(shared), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
        "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
/// Arrives and announces bytes of bulk copies to the barrier's current phase.
__device__ inline void arrive_expecting(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

}  // namespace coppice::cuda::hopper
