#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/pass/rope.cuh"

namespace coppice::cuda {
namespace {

/// Blocks (rows, column_blocks): a thread takes N elements of one head's first half and their N
/// partners of the second half.
template <int N>
__global__ void rope_write_kv_kernel(const RopeTensors tensors) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int32_t half = tensors.half_dim;
  const std::int32_t per_head = half / N;
  const auto item = static_cast<std::int32_t>(column_of_thread());
  if (item >= all_heads(tensors) * per_head) return;
  const std::int32_t head = item / per_head;
  const std::int32_t i = item % per_head * N;
  const std::int64_t row = blockIdx.x;
  const float* x = place_in_qkv(tensors, row, head, i);
  rotate_and_write<N>(tensors, row, head, i, load<N>(x), load<N>(x + half));
}

template <int N>
void launch(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  const std::int64_t items =
      (std::int64_t{tensors.heads} + 2 * std::int64_t{tensors.kv_heads}) * (tensors.half_dim / N);
  const dim3 grid(static_cast<unsigned>(rows), column_blocks(items));
  launch_early(rope_write_kv_kernel<N>, grid, column_threads, 0, stream, tensors);
  check_launch("rope_write_kv");
}

}  // namespace

RopeTensors rope_tensors(const PassView& pass, float* qkv, std::int32_t heads,
                         const RopeTable& rope, const KvLayout& layout, void* keys, void* values,
                         std::int32_t layer) {
  const std::int64_t layer_start =
      std::int64_t{layer} * layout.pages * layout.kv_heads * layout.page_size * layout.head_dim;
  return {pass.positions,
          pass.write_slots,
          qkv,
          rope.cosine.as<float>(),
          rope.sine.as<float>(),
          static_cast<__nv_bfloat16*>(keys) + layer_start,
          static_cast<__nv_bfloat16*>(values) + layer_start,
          heads,
          layout.kv_heads,
          layout.head_dim / 2,
          layout.page_size};
}

void rope_write_kv(const PassView& pass, float* qkv, std::int32_t heads, const RopeTable& rope,
                   const KvLayout& layout, void* keys, void* values, std::int32_t layer,
                   std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  rope_write_kv(rope_tensors(pass, qkv, heads, rope, layout, keys, values, layer), rows, stream);
}

void rope_write_kv(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream) {
  const bool vectors =
      tensors.half_dim % vector_width == 0 && takes_vectors(tensors.qkv, sizeof(float)) &&
      takes_vectors(tensors.cosine, sizeof(float)) && takes_vectors(tensors.sine, sizeof(float)) &&
      takes_vectors(tensors.keys, sizeof(__nv_bfloat16)) &&
      takes_vectors(tensors.values, sizeof(__nv_bfloat16));
  const auto launch_width = vectors ? launch<vector_width> : launch<1>;
  launch_width(tensors, rows, stream);
}

}  // namespace coppice::cuda
