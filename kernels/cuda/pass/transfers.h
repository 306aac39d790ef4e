// Inputs on their way from page-locked memory to the GPU's. A kernel that runs before all that
// needs them reads them over the bus: for a few KB that takes less than a copy engine's start and
// end, and can be part of a recording though sizes and places change.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/memory.h"
#include "kernels/device.h"

namespace coppice::cuda {

inline constexpr const char* transfers_purpose = "transfers";

/// What departs together, as the kernel reads it: in one go, since a read takes microseconds.
struct Envelope {
  static constexpr std::int32_t most_entries = 8;
  static constexpr std::int32_t blocks = 8;
  static constexpr std::uint32_t vector_bytes = 16;
  static constexpr std::uint32_t capacity = 4096;  ///< vectors

  struct Entry {
    void* device;
    std::uint64_t end;  ///< of its vectors in `contents`; they begin where those before end
  };
  struct Head {
    std::uint32_t number = 0;  ///< of the departure
    std::uint32_t entries = 0;
    std::uint64_t vectors = 0;
    Entry entry[most_entries] = {};
  };
  alignas(256) Head head;
  alignas(256) std::byte contents[capacity][vector_bytes];
  /// Written by each block of the kernel once it has read its part.
  alignas(256) std::uint32_t read[blocks];
};

/// One per stream, for one thread at a time.
class Transfers {
 public:
  explicit Transfers(cudaStream_t stream);

  /// Takes note of `bytes` at `host` (page-locked), which stay as they are until depart(). Both
  /// pointers are aligned to 16 bytes, with room for as many bytes rounded up to 16. Given again
  /// for the same `device` before they depart, the later holds.
  void add(void* device, const void* host, std::size_t bytes);
  /// The next kernel of queue(), a recorded one too, takes along what was added.
  void depart();
  void queue() const;
  void send() {
    depart();
    queue();
  }
  /// Waits until host memory that has departed may be written again.
  void wait();
  /// Takes back what was added for `memory`, which is about to be freed.
  void forget(const DeviceBuffer& memory);

 private:
  struct Added {
    void* device;
    const void* host;
    std::uint32_t vectors;
  };

  /// Waits until the envelope has been read.
  void wait_for_readers();

  const cudaStream_t stream_;
  PinnedArray<Envelope> envelope_;
  std::vector<Added> added_;
  Event copied_;  ///< what went past the envelope, being too much
  bool copying_ = false;
  std::uint32_t departed_ = 0;
};

}  // namespace coppice::cuda
