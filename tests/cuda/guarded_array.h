// Device memory for tests of single kernels, without a Device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/error.h"
#include "kernels/device.h"

namespace coppice::testing {

/// [count] T between two guard zones. All of it starts poisoned, every byte 0xff: NaN as f32, f16
/// and bf16, -1 as an integer. So what a kernel does not write shows, within the array and around
/// it. data() is aligned to 256 bytes, or `misaligned_by` elements past that.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t count, std::size_t misaligned_by = 0)
      : count_(count), first_(guard_bytes + misaligned_by * sizeof(T)) {
    cuda::check(cudaMalloc(&memory_, total_bytes()), "allocation of a test's memory");
    poison();
  }
  explicit GuardedArray(const std::vector<T>& values, std::size_t misaligned_by = 0)
      : GuardedArray(values.size(), misaligned_by) {
    upload(values);
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;
  ~GuardedArray() { (void)cudaFree(memory_); }

  T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + first_); }
  std::size_t size() const { return count_; }

  void poison() {
    cuda::check(cudaMemset(memory_, 0xff, total_bytes()), "poisoning of a test's memory");
    cuda::check(cudaDeviceSynchronize(), "poisoning of a test's memory");
  }
  void upload(std::span<const T> values) {
    ASSERT_EQ(values.size(), count_);
    cuda::check(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
                "upload of a test's values");
    // Streams of tests do not wait for the default stream.
    cuda::check(cudaDeviceSynchronize(), "upload of a test's values");
  }
  /// Waits for everything queued on the device.
  std::vector<T> download() const {
    cuda::check(cudaDeviceSynchronize(), "the kernels under test");
    std::vector<T> values(count_);
    cuda::check(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost),
                "download of a test's values");
    return values;
  }
  /// Likewise.
  bool guards_intact() const {
    cuda::check(cudaDeviceSynchronize(), "the kernels under test");
    std::vector<std::uint8_t> bytes(total_bytes());
    cuda::check(cudaMemcpy(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost),
                "download of a test's values");
    const auto is_poison = [](std::uint8_t byte) { return byte == 0xff; };
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto end = begin + static_cast<std::ptrdiff_t>(count_ * sizeof(T));
    return std::all_of(bytes.begin(), begin, is_poison) && std::all_of(end, bytes.end(), is_poison);
  }

 private:
  static constexpr std::size_t guard_bytes = 256;
  std::size_t total_bytes() const { return first_ + count_ * sizeof(T) + guard_bytes; }

  std::size_t count_;
  std::size_t first_;
  void* memory_ = nullptr;
};

/// What cuda::Allocate asks for, straight from the driver.
inline DeviceBuffer allocate_for_test(std::size_t bytes, const char* purpose) {
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, bytes), purpose);
  cuda::check(cudaMemset(memory, 0, bytes), purpose);
  cuda::check(cudaDeviceSynchronize(), purpose);
  return DeviceBuffer(
      memory, bytes, [](void* p, void*) { (void)cudaFree(p); }, nullptr);
}

/// A stream that does not wait for the default one.
class TestStream {
 public:
  TestStream() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream");
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { (void)cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Skips without a GPU; has a stream that does not wait for the default one.
class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!cuda::has_device(&why_not)) GTEST_SKIP() << why_not;
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream");
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace coppice::testing
