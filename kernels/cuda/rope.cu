#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

struct RopeTensors {
  const std::int32_t* positions;
  const KvSlot* slots;
  float* qkv;
  const float* cosine;
  const float* sine;
  __nv_bfloat16* keys;    ///< of the layer
  __nv_bfloat16* values;  ///< of the layer
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t half_dim;
  std::int32_t page_size;
};

/// Blocks (rows, column_blocks): a thread takes N elements of one head's first half and their N
/// partners of the second half.
template <int N>
__global__ void rope_write_kv_kernel(const RopeTensors tensors) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int32_t half = tensors.half_dim;
  const std::int32_t per_head = half / N;
  const std::int32_t all_heads = tensors.heads + 2 * tensors.kv_heads;
  const auto item = static_cast<std::int32_t>(column_of_thread());
  if (item >= all_heads * per_head) return;
  const std::int32_t head = item / per_head;
  const std::int32_t i = item % per_head * N;
  const std::int64_t row = blockIdx.x;
  const bool is_query = head < tensors.heads;
  const bool is_value = head >= tensors.heads + tensors.kv_heads;
  const KvSlot slot = is_query ? no_slot : tensors.slots[row];
  if (!is_query && slot < 0) return;

  float* x = tensors.qkv + (row * all_heads + head) * 2 * half + i;
  Vector<float, N> low = load<N>(x);
  Vector<float, N> high = load<N>(x + half);
  if (!is_value) {
    const std::int64_t angle = std::int64_t{tensors.positions[row]} * half + i;
    const Vector<float, N> cosine = load<N>(tensors.cosine + angle);
    const Vector<float, N> sine = load<N>(tensors.sine + angle);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float a = low.at[k], b = high.at[k];
      low.at[k] = a * cosine.at[k] - b * sine.at[k];
      high.at[k] = b * cosine.at[k] + a * sine.at[k];
    }
  }
  if (is_query) {
    store(low, x);
    store(high, x + half);
    return;
  }
  const std::int32_t kv_head = head - tensors.heads - (is_value ? tensors.kv_heads : 0);
  const std::int64_t page = slot / tensors.page_size;
  const std::int64_t token =
      (page * tensors.kv_heads + kv_head) * tensors.page_size + slot % tensors.page_size;
  __nv_bfloat16* to = (is_value ? tensors.values : tensors.keys) + token * 2 * half + i;
  store(rounded(low), to);
  store(rounded(high), to + half);
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

void rope_write_kv(const PassView& pass, float* qkv, std::int32_t heads, const RopeTable& rope,
                   const KvLayout& layout, void* keys, void* values, std::int32_t layer,
                   std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  const std::int64_t layer_start =
      std::int64_t{layer} * layout.pages * layout.kv_heads * layout.page_size * layout.head_dim;
  const RopeTensors tensors{pass.positions,
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
  const bool vectors =
      tensors.half_dim % vector_width == 0 && takes_vectors(qkv, sizeof(float)) &&
      takes_vectors(tensors.cosine, sizeof(float)) && takes_vectors(tensors.sine, sizeof(float)) &&
      takes_vectors(keys, sizeof(__nv_bfloat16)) && takes_vectors(values, sizeof(__nv_bfloat16));
  const auto launch_width = vectors ? launch<vector_width> : launch<1>;
  launch_width(tensors, rows, stream);
}

}  // namespace coppice::cuda
