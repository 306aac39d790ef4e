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
  std::int32_t half_dim;
  std::int32_t page_size;
};

RopeTensors rope_tensors(const PassView& pass, float* qkv, std::int32_t heads,
                         const RopeTable& rope, const KvLayout& layout, void* keys, void* values,
                         std::int32_t layer);
void rope_write_kv(const RopeTensors& tensors, std::int32_t rows, cudaStream_t stream);

}  // namespace coppice::cuda
