#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

template <int N>
__global__ void gather_kernel(const std::int32_t* rows, const std::uint32_t* x, std::int64_t width,
                              std::uint32_t* out) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int64_t column = column_of_thread() * N;
  if (column >= width) return;
  const std::int64_t to = blockIdx.x;
  const std::int64_t from = rows[to];
  store(load<N>(x + from * width + column), out + to * width + column);
}

template <int N>
void launch_gather(const std::int32_t* indices, const std::uint32_t* x, std::int64_t width,
                   std::uint32_t* out, std::int32_t rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), column_blocks(width / N));
  launch_early(gather_kernel<N>, grid, column_threads, 0, stream, indices, x, width, out);
  check_launch("gather_logit_rows");
}

}  // namespace

void gather_logit_rows(const PassView& pass, const float* x, std::int64_t width, float* out,
                       std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  // As integers: elements may be pairs of bf16.
  const auto* from = reinterpret_cast<const std::uint32_t*>(x);
  auto* to = reinterpret_cast<std::uint32_t*>(out);
  const bool vectors = width % vector_width == 0 && takes_vectors(x, sizeof(float)) &&
                       takes_vectors(out, sizeof(float));
  const auto launch_width = vectors ? launch_gather<vector_width> : launch_gather<1>;
  launch_width(pass.logit_rows, from, width, to, rows, stream);
}

}  // namespace coppice::cuda
