#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

template <typename T, int N>
__global__ void embed_kernel(const std::int32_t* tokens, const T* table, std::int64_t hidden,
                             float scale, float* out) {
  wait_for_former_kernels();
  // Later than others do: all kernels after this one, whatever they read before they wait, begin
  // once the pass's inputs have come.
  let_next_kernel_begin();
  const std::int64_t column = column_of_thread() * N;
  if (column >= hidden) return;
  const std::int64_t row = blockIdx.x;
  const std::int64_t token = tokens[row];
  const Vector<T, N> from = load<N>(table + token * hidden + column);
  Vector<float, N> to;
#pragma unroll
  for (int k = 0; k < N; ++k) to.at[k] = widened(from.at[k]) * scale;
  store(to, out + row * hidden + column);
}

template <typename T>
void launch_embed(const std::int32_t* tokens, const void* table, std::int64_t hidden, float scale,
                  float* out, std::int32_t rows, cudaStream_t stream) {
  const T* values = static_cast<const T*>(table);
  const auto grid_rows = static_cast<unsigned>(rows);
  if (hidden % vector_width == 0 && takes_vectors(table, sizeof(T)) &&
      takes_vectors(out, sizeof(float))) {
    const dim3 grid(grid_rows, column_blocks(hidden / vector_width));
    launch_early(embed_kernel<T, vector_width>, grid, column_threads, 0, stream, tokens, values,
                 hidden, scale, out);
  } else {
    const dim3 grid(grid_rows, column_blocks(hidden));
    launch_early(embed_kernel<T, 1>, grid, column_threads, 0, stream, tokens, values, hidden, scale,
                 out);
  }
  check_launch("embed");
}

}  // namespace

void embed(const PassView& pass, const void* table, DType dtype, std::int64_t hidden, float scale,
           float* out, std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  switch (dtype) {
    case DType::f32:
      launch_embed<float>(pass.tokens, table, hidden, scale, out, rows, stream);
      return;
    case DType::f16:
      launch_embed<__half>(pass.tokens, table, hidden, scale, out, rows, stream);
      return;
    case DType::bf16:
      launch_embed<__nv_bfloat16>(pass.tokens, table, hidden, scale, out, rows, stream);
      return;
  }
}

}  // namespace coppice::cuda
