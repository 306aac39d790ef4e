#include "kernels/cuda/attention/hopper_kernel.cuh"
#include "kernels/cuda/attention/hopper_launch.h"
#include "traced_attention.h"

namespace coppice::bench {
namespace {

using cuda::hopper::Phase;
using cuda::hopper::phases;

/// One thread's clock; of phases met several times, the last.
struct ClockTrace {
  std::uint64_t* nanoseconds;  ///< [blocks][phases]; untouched where a phase was not met

  __device__ void mark(Phase phase) const {
    if (threadIdx.x != cuda::hopper::warpgroup_threads) return;
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
    nanoseconds[blockIdx.x * phases + static_cast<unsigned>(phase)] = now;
  }
};

template <typename V>
void queue(const cuda::hopper::Arguments& arguments, const ClockTrace& trace, std::int32_t blocks,
           cudaStream_t stream) {
  cuda::check(cudaFuncSetAttribute(cuda::hopper::attend<V, ClockTrace>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   cuda::hopper::shared_bytes<V>()),
              "shared memory of attention");
  cuda::hopper::launch<V>(arguments, trace, blocks, stream);
}

template <typename V>
__global__ void __launch_bounds__(V::threads, 1) do_nothing() {}

}  // namespace

void queue_nothing(std::int32_t blocks, cudaStream_t stream) {
  using V = cuda::hopper::Variant<traced_head_dim, range_wide_tile, range_tile_tokens>;
  cuda::check(cudaFuncSetAttribute(do_nothing<V>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   cuda::hopper::shared_bytes<V>()),
              "shared memory of an empty kernel");
  cuda::hopper::launch_alike<V>(do_nothing<V>, blocks, stream);
}

void traced_attention(const AttentionLaunch& of, const cuda::PassView& pass,
                      const InputSets& inputs, std::int32_t set,
                      const cuda::AttentionScratch& scratch, std::int32_t blocks,
                      std::uint64_t* nanoseconds, cudaStream_t stream) {
  const AttentionShape shape = inputs.work().cell.shape();
  const cuda::hopper::Arguments arguments = cuda::hopper::make_arguments(
      pass, inputs.q(set), inputs.q_stride(), shape, inputs.rule(), inputs.layout(), inputs.keys(),
      inputs.values(), set, inputs.out(set), scratch);
  const ClockTrace trace{nanoseconds};
  cuda::hopper::with_tiles<traced_head_dim>(
      of, [&]<typename V>(V) { queue<V>(arguments, trace, blocks, stream); });
}

}  // namespace coppice::bench
