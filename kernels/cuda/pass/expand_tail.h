// The kernel that puts the parts of a tail together.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/pass/tail_parts.h"

namespace coppice::cuda {

/// What is sent of a tail in parts: this, then the list, then at the next place that is aligned to
/// it the parts.
struct alignas(16) TailMessage {
  std::int32_t parts = 0;
  std::int32_t listed = 0;

  /// Where parts begin, from the message on, in bytes.
  COPPICE_HOST_DEVICE constexpr std::size_t parts_at() const {
    const std::size_t end =
        sizeof(TailMessage) + static_cast<std::size_t>(listed) * sizeof(VisibleKv);
    return (end + alignof(TailMessage) - 1) / alignof(TailMessage) * alignof(TailMessage);
  }
  COPPICE_HOST_DEVICE constexpr std::size_t bytes() const {
    return parts_at() + static_cast<std::size_t>(parts) * sizeof(TailPart);
  }
};

/// Writes the tail's tokens to `tail` and the slots that are new to `table`. All pointers are
/// device memory. May be captured in a CUDA graph; the message then may change.
void expand_tail(const TailMessage* message, KvSlot* table, VisibleKv* tail, cudaStream_t stream);

}  // namespace coppice::cuda
