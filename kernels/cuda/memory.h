// Page-locked host memory, and events that say when a copy no longer uses it. (Memory of the GPU
// comes from Allocate, weight_upload.h.)
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {

/// Move-only owner of `count` zeroed values in page-locked host memory, which copies of a stream
/// use while the host goes on. Aligned to 256 bytes. `purpose` names them where there is no room.
template <typename T>
class PinnedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PinnedArray() = default;
  PinnedArray(std::size_t count, const char* purpose) : count_(count) {
    if (count == 0) return;
    const std::size_t bytes = count * sizeof(T);
    void* memory = nullptr;
    if (const cudaError_t status = cudaMallocHost(&memory, bytes); status != cudaSuccess) {
      (void)cudaGetLastError();  // a failed allocation must not fail the next launch's check
      throw_failure(cat("CUDA: ", purpose, " needs ", bytes,
                        " bytes of page-locked host memory, which cannot be had (",
                        cudaGetErrorString(status), "); free host memory or use smaller trees"));
    }
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
    values_ = static_cast<T*>(memory);
  }
  PinnedArray(PinnedArray&& other) noexcept { swap(other); }
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    swap(other);
    return *this;
  }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() {
    if (values_ != nullptr) (void)cudaFreeHost(values_);
  }

  T* data() const { return values_; }
  std::size_t size() const { return count_; }

 private:
  void swap(PinnedArray& other) {
    std::swap(values_, other.values_);
    std::swap(count_, other.count_);
  }
  T* values_ = nullptr;
  std::size_t count_ = 0;
};

/// Owner of an event without timing.
class Event {
 public:
  Event() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creation of an event");
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }

  void record(cudaStream_t stream) const {
    check(cudaEventRecord(event_, stream), "recording an event");
  }
  /// Work queued on the stream from now on begins after what was recorded.
  void hold(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
  }
  /// Whether what was recorded has come, or it was never recorded. A failed GPU's has.
  bool has_passed() const { return cudaEventQuery(event_) != cudaErrorNotReady; }
  /// Returns at once if it was never recorded.
  void wait() const { check(cudaEventSynchronize(event_), "waiting for an event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace coppice::cuda
