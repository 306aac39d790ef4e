#include "kernels/cuda/linear/pinned_chunks.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mebibytes.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

/// Chunks that are locked before anybody asks for them, at most.
constexpr std::size_t ahead = 16;

// Pages are taken before the driver locks them: it would hold up other calls for as long.
std::byte* lock_pages(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_failure("the system has no memory left");
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  const cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();  // a failed allocation must not fail the next launch's check
    (void)munmap(memory, bytes);
    throw_failure(cudaGetErrorString(status));
  }
  return static_cast<std::byte*>(memory);
}

void unlock_pages(std::byte* memory, std::size_t bytes) {
  (void)cudaHostUnregister(memory);
  (void)munmap(memory, bytes);
}

}  // namespace

PinnedMemory pinned_memory() { return {lock_pages, unlock_pages}; }

PinnedChunks::PinnedChunks(PinnedMemory memory) : memory_(std::move(memory)) {}

PinnedChunks::~PinnedChunks() {
  finish();
  for (std::byte* const chunk : chunks_) memory_.unlock(chunk, chunk_bytes);
}

std::vector<std::span<std::byte>> PinnedChunks::take(std::size_t bytes) {
  std::vector<std::span<std::byte>> pieces;
  while (bytes > 0) {
    std::byte* chunk = nullptr;
    if (left_ == 0) {
      chunk = next_chunk();
      left_ = chunk_bytes;
    } else {
      const std::lock_guard lock(mutex_);
      chunk = chunks_[used_ - 1];
    }
    const std::size_t some = std::min(bytes, left_);
    pieces.emplace_back(chunk + (chunk_bytes - left_), some);
    left_ -= some;
    bytes -= some;
  }
  return pieces;
}

std::byte* PinnedChunks::next_chunk() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable() && !stop_) {
    int device = 0;
    check(cudaGetDevice(&device), "query of the current device");
    try {
      thread_ = std::thread([this, device] { lock_ahead(device); });
    } catch (const std::system_error&) {
      stop_ = true;  // this thread locks each chunk as it is needed
    }
  }
  if (stop_ && used_ == chunks_.size()) {
    try {
      chunks_.push_back(memory_.lock(chunk_bytes));
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  changed_.wait(lock, [&] { return used_ < chunks_.size() || failure_ != nullptr; });
  if (used_ == chunks_.size()) {
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      throw_failure(cat("CUDA: streamed layers need more page-locked host memory than the ",
                        mebibytes(used_ * chunk_bytes), " that could be had (", error.what(),
                        "); free host memory, keep more layers on the card (--gpu-layers), or use "
                        "a quantised target (--target-weights q4_k)"));
    }
  }
  changed_.notify_all();
  return chunks_[used_++];
}

void PinnedChunks::lock_ahead(int device) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || chunks_.size() < used_ + ahead; });
    if (stop_) return;
    lock.unlock();
    std::byte* chunk = nullptr;
    std::exception_ptr failure;
    try {
      check(cudaSetDevice(device), "choice of the device");
      chunk = memory_.lock(chunk_bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (chunk != nullptr) chunks_.push_back(chunk);
    failure_ = failure;
    changed_.notify_all();
    if (failure != nullptr) return;
  }
}

void PinnedChunks::finish() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (; chunks_.size() > used_; chunks_.pop_back()) memory_.unlock(chunks_.back(), chunk_bytes);
}

}  // namespace coppice::cuda
