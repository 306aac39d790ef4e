// Kernels of a stream that overlap: one lets the next begin early, and the next, launched so that
// it may, waits before it touches what former kernels write.
#pragma once

namespace coppice::cuda {

/// Lets the stream's next kernel begin once all blocks of this one are here or gone.
__device__ inline void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}
/// Waits until former kernels have ended and what they wrote is visible. Not to be had through
/// __restrict__ pointers to const: such loads may move up past the wait.
__device__ inline void wait_for_former_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

}  // namespace coppice::cuda
