// What the kernels of a pass read from device memory: fixed addresses, new contents every pass.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/range_plan.h"
#include "kernels/visible_kv.h"

namespace coppice::cuda {

struct PassScalars {
  std::int32_t rows = 0;        ///< real rows; further rows of a launch are padding
  std::int32_t logit_rows = 0;  ///< likewise
  std::int32_t prefix = 0;      ///< KV tokens before the tail
  std::int32_t prefix_begin = 0, prefix_position = 0;  ///< kernels/cuda/attention/flatten_plan.h
  std::int32_t tail = 0;
  std::int32_t chunk_tokens = 0;  ///< kernels/cuda/attention/flatten_plan.h
  std::int32_t chunks = 0;
  RangeCut cut;  ///< kernels/cuda/attention/range_plan.h
};

/// Pointers to device memory, passed to kernels by value.
struct PassView {
  const PassScalars* scalars;
  const std::int32_t* tokens;        ///< [row capacity], 0 for padding
  const std::int32_t* positions;     ///< [row capacity], 0 for padding
  const std::int32_t* write_slots;   ///< [row capacity], no_slot for padding
  const std::int32_t* prefix_slots;  ///< [KV token capacity]
  const VisibleKv* tail;             ///< [KV token capacity of the tail]
  const std::int32_t* logit_rows;    ///< [logit row capacity], 0 for padding
  // kernels/cuda/attention/range_plan.h; read where launches take ranges.
  const BlockRange* ranges;  ///< [blocks of a launch]
  const RowTile* row_tiles;  ///< [row tile capacity]
};

}  // namespace coppice::cuda
