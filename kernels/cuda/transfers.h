// Inputs on their way from page-locked memory to the GPU's. A kernel that runs before all that
// needs them reads them over the bus: for a few KB that takes less than a copy engine's start and
// end, and can be part of a recording though sizes and places change.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/weight_upload.h"

namespace coppice::cuda {

inline constexpr const char* transfers_purpose = "transfers";
inline constexpr std::size_t transfers_device_bytes = 256;

/// What departs together.
struct Manifest {
  static constexpr std::int32_t most = 8;
  struct Entry {
    void* device;
    const void* host;
    std::uint64_t vectors;  ///< of 16 bytes
    std::uint64_t unused;
  };
  std::uint32_t number = 0;  ///< of the departure
  std::int32_t count = 0;
  std::uint64_t unused = 0;
  Entry entries[most] = {};
};

/// One per stream, for one thread at a time.
class Transfers {
 public:
  Transfers(const Allocate& allocate, cudaStream_t stream);

  /// Waits until host memory that has departed may be written again.
  void wait();
  /// From page-locked `host`; both aligned to 16 bytes and with room for as many bytes rounded up
  /// to 16. Given again for the same `device` before it departs, the later holds.
  void add(void* device, const void* host, std::size_t bytes);
  /// What was added is what the next kernel of queue() takes along, a recorded one too.
  void depart();
  void queue() const;
  void send() {
    depart();
    queue();
  }

 private:
  const cudaStream_t stream_;
  PinnedArray<Manifest> manifest_;
  PinnedArray<std::uint32_t> arrived_;
  DeviceBuffer finished_;
  Manifest next_;
  std::uint32_t departed_ = 0;
};

}  // namespace coppice::cuda
