// Host memory to the device at the speed of the disk or the bus.
//
// A copy from pageable memory or a file is bound by the one core that moves it into pinned memory.
// Here several threads do so, each with pinned buffers of its own, and queue their chunks' copies
// on one stream.
//
// For one thread at a time, and not while the stream is being captured. Calls return when `host`
// has been read; what they put on the device is there for work queued on the stream later.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/device.h"

namespace coppice::cuda {

/// Gives device memory, aligned to 256 bytes, whose zero-filling is ordered before later work on
/// the stream that the receiver uses; see Device::allocate.
using Allocate = std::function<DeviceBuffer(std::size_t bytes, const char* purpose)>;

class WeightUpload {
 public:
  /// Threads start here; pinned memory (at most 64 MiB) and device memory for conversion (4 MiB)
  /// are taken when first needed. All of it is kept until the destructor, which waits for the
  /// stream. With `copies` false device memory is taken, but nothing is read or copied, and no
  /// value is found to be NaN.
  WeightUpload(Allocate allocate, cudaStream_t stream, bool copies = true);
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  cudaStream_t stream() const;

  /// Bytes as they are, to an address of any alignment.
  void upload(void* device, const HostBytes& host, std::size_t bytes);

  /// host [count] f32, f16 or bf16 of any alignment, to device [count] bf16 aligned to 2 bytes,
  /// rounded to nearest even.
  void upload_bf16(void* device, const HostBytes& host, DType dtype, std::int64_t count);

  /// Whether one of device [count] bf16 is NaN or infinite. Waits for the stream.
  bool has_non_finite(const void* device, std::int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cuda
