// The GPU's side of completion.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/pass/completion.h"

namespace coppice::cuda {

/// Called by one thread of each of `all` parties, after what the party wrote: whether it is the
/// last one, which then sees what the others wrote.
__device__ inline bool is_last(std::uint32_t* finished, std::uint32_t all) {
  // The fence orders the party's writes before its number. Numbers are handed out atomically, so
  // whoever draws the last one knows that all others were written before; the second fence keeps
  // its reads from moving up. The count is back at 0 before the launch ends, and nothing but the
  // next launch on the stream touches it.
  __threadfence();
  if (atomicAdd(finished, 1u) + 1 != all) return false;
  __threadfence();
  *finished = 0;
  return true;
}

/// Tells the host, which then sees what this thread, and those whose writes it has seen, wrote.
__device__ inline void tell_host(std::uint32_t* mark, std::uint32_t number) {
  __threadfence_system();
  *static_cast<volatile std::uint32_t*>(mark) = number;
}

}  // namespace coppice::cuda
