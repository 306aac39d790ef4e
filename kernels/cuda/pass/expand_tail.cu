#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/expand_tail.h"

namespace coppice::cuda {
namespace {

constexpr unsigned expand_threads = 256;
/// Blocks that share a part, and parts that are run side by side: one wave of any GPU.
constexpr unsigned blocks_of_part = 4, parts_at_once = 64;

/// Grid: (blocks of a part, parts at once).
__global__ void __launch_bounds__(expand_threads)
    expand_kernel(const TailMessage* message, KvSlot* table, VisibleKv* tail) {
  wait_for_former_kernels();
  let_next_kernel_begin();
  const TailMessage head = *message;
  const auto* bytes = reinterpret_cast<const char*>(message);
  const auto* list = reinterpret_cast<const VisibleKv*>(bytes + sizeof(TailMessage));
  const auto* parts = reinterpret_cast<const TailPart*>(bytes + head.parts_at());
  for (auto p = static_cast<std::int32_t>(blockIdx.y); p < head.parts;
       p += static_cast<std::int32_t>(gridDim.y)) {
    const TailPart part = parts[p];
    for (auto at =
             part.begin + static_cast<std::int32_t>(blockIdx.x * expand_threads + threadIdx.x);
         at < part.end; at += static_cast<std::int32_t>(gridDim.x * expand_threads)) {
      tail[at] = part.token(at, table, list);
    }
  }
}

}  // namespace

void expand_tail(const TailMessage* message, KvSlot* table, VisibleKv* tail, cudaStream_t stream) {
  launch_early(expand_kernel, dim3(blocks_of_part, parts_at_once), expand_threads, 0, stream,
               message, table, tail);
  check_launch("a pass's tail");
}

}  // namespace coppice::cuda
