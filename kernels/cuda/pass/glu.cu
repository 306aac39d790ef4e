#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/activations.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

template <int N>
__global__ void glu_kernel(Activation activation, const float* gate_up, std::int64_t n,
                           __nv_bfloat16* out) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int64_t column = column_of_thread() * N;
  if (column >= n) return;
  const std::int64_t row = blockIdx.x;
  const float* from = gate_up + row * 2 * n + column;
  Vector<float, N> gate = load<N>(from);
  const Vector<float, N> up = load<N>(from + n);
#pragma unroll
  for (int k = 0; k < N; ++k) gate.at[k] = gated(activation, gate.at[k], up.at[k]);
  store(rounded(gate), out + row * n + column);
}

template <int N>
void launch_glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
                void* out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), column_blocks(n / N));
  launch_early(glu_kernel<N>, grid, column_threads, 0, stream, activation, gate_up, n,
               static_cast<__nv_bfloat16*>(out));
  check_launch("glu");
}

}  // namespace

void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n, void* out,
         cudaStream_t stream) {
  if (rows == 0) return;
  const bool vectors = n % vector_width == 0 && takes_vectors(gate_up, sizeof(float)) &&
                       takes_vectors(out, sizeof(__nv_bfloat16));
  const auto launch_width = vectors ? launch_glu<vector_width> : launch_glu<1>;
  launch_width(activation, gate_up, rows, n, out, stream);
}

}  // namespace coppice::cuda
