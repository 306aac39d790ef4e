// Page-locked host memory for a model's streamed layers, in chunks that a thread of its own locks
// ahead of their use: the system takes half a second for each GiB, in which files are read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace coppice::cuda {

/// Page-locked memory; calls replace the CUDA runtime's in tests.
struct PinnedMemory {
  /// Throws Error(failure) where no more can be had; the argument is in bytes.
  std::function<std::byte*(std::size_t bytes)> lock;
  std::function<void(std::byte* memory, std::size_t bytes)> unlock;
};
PinnedMemory pinned_memory();

/// For one thread at a time.
class PinnedChunks {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{64} << 20;

  explicit PinnedChunks(PinnedMemory memory = pinned_memory());
  ~PinnedChunks();
  PinnedChunks(const PinnedChunks&) = delete;
  PinnedChunks& operator=(const PinnedChunks&) = delete;

  /// A further so many bytes, as pieces of chunks, in order. Throws Error(failure), saying how much
  /// there is, if no more memory can be locked; what was given before stays.
  std::vector<std::span<std::byte>> take(std::size_t bytes);
  /// Ends the thread and frees what it locked in vain.
  void finish();

 private:
  void lock_ahead(int device);
  std::byte* next_chunk();

  const PinnedMemory memory_;
  std::size_t left_ = 0;  ///< bytes of the last chunk in use that are not taken
  std::mutex mutex_;      ///< guards what follows
  std::condition_variable changed_;
  std::vector<std::byte*> chunks_;  ///< locked so far
  std::size_t used_ = 0;            ///< of these, given out in part at least
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace coppice::cuda
