#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

template <int N>
__global__ void soft_cap_kernel(float* logits, std::int64_t width, float cap) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int64_t column = column_of_thread() * N;
  if (column >= width) return;
  float* place = logits + std::int64_t{blockIdx.x} * width + column;
  Vector<float, N> values = load<N>(place);
#pragma unroll
  for (int k = 0; k < N; ++k) values.at[k] = cap * tanhf(values.at[k] / cap);
  store(values, place);
}

template <int N>
void launch_soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap,
                     cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), column_blocks(width / N));
  launch_early(soft_cap_kernel<N>, grid, column_threads, 0, stream, logits, width, cap);
  check_launch("soft_cap");
}

}  // namespace

void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap,
              cudaStream_t stream) {
  if (rows == 0) return;
  const bool vectors = width % vector_width == 0 && takes_vectors(logits, sizeof(float));
  const auto launch_width = vectors ? launch_soft_cap<vector_width> : launch_soft_cap<1>;
  launch_width(logits, rows, width, cap, stream);
}

}  // namespace coppice::cuda
