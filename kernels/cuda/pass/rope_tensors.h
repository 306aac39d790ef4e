// What rope_write_kv() (elementwise.h) works on, also for products that end in it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/types.h"
#include "kernels/cuda/pass/pass_view.h"
#include "kernels/device.h"

namespace coppice::cuda {

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
  std::int32_t head_dim;
  std::int32_t half_dim;  ///< of what is rotated
  std::int32_t page_size;
  HeadNorms norms;
};

/// Whether products can end in it: what becomes of an element depends on no other but its partner.
inline bool takes_pairs(const RopeTensors& tensors) {
  return 2 * tensors.half_dim == tensors.head_dim && tensors.norms.query == nullptr &&
         tensors.norms.key == nullptr;
}

RopeTensors rope_tensors(const PassView& pass, float* qkv, const QkvOutput& to);
void rope_write_kv(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream);

}  // namespace coppice::cuda
