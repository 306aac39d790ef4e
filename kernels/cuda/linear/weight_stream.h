// A GPU's layers that lie in page-locked host memory (kernels/weight_stream.h).
//
// Copies have a stream of their own; events order them with the passes' stream. Kernels that ask
// for weights before the former kernel has ended (streamed_stages.cuh) must not do so before the
// copy: each visit begins with a kernel that is not launched early.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <span>
#include <vector>

#include "kernels/cuda/linear/pinned_chunks.h"
#include "kernels/cuda/linear/weight_upload.h"
#include "kernels/cuda/memory.h"
#include "kernels/weight_stream.h"

namespace coppice::cuda {

/// The runtime's calls; others in tests.
struct WeightStreamCalls {
  PinnedMemory memory = pinned_memory();
  std::function<cudaError_t(void* to, const void* from, std::size_t bytes, cudaStream_t)> copy =
      [](void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
      };
};

class CudaWeightStream final : public RingStream {
 public:
  /// Passes are run on `stream`. With `copies` false device memory is taken, and nothing else.
  CudaWeightStream(std::int32_t places, Allocate allocate, cudaStream_t stream, bool copies,
                   WeightStreamCalls calls = {});
  ~CudaWeightStream() override;

 protected:
  void take_block(std::size_t bytes) override;
  void store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) override;
  DeviceBuffer take_places(std::int32_t places, std::size_t bytes_each) override;
  void copy(std::int32_t visit, std::int32_t place, void* to) override;
  void wait_for(std::int32_t place) override;
  void free_place(std::int32_t place, void* memory) override;

 private:
  struct Place {
    Event copied, free;
  };
  const Allocate allocate_;
  const cudaStream_t stream_;
  const bool copies_;
  const WeightStreamCalls calls_;
  cudaStream_t copy_stream_ = nullptr;
  PinnedChunks chunks_;
  std::vector<std::vector<std::span<std::byte>>> blocks_;  ///< by visit
  std::vector<Place> places_;
};

/// Queues a kernel that does nothing, and that no later kernel begins before: what follows begins
/// after what the stream waits for.
void queue_gate(cudaStream_t stream);

}  // namespace coppice::cuda
