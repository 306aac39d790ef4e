// Device memory of the benchmark.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/error.h"

namespace coppice::bench {

/// [count] T, zeroed; at least one element is allocated. Calls wait for the device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(T);
    cuda::check(cudaMalloc(&memory, bytes), "allocating the benchmark's memory");
    data_ = static_cast<T*>(memory);
    cuda::check(cudaMemset(data_, 0, bytes), "clearing the benchmark's memory");
    cuda::check(cudaDeviceSynchronize(), "clearing the benchmark's memory");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    upload(values);
  }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return count_; }

  void upload(std::span<const T> values) {
    if (values.empty()) return;
    cuda::check(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
                "upload");
    cuda::check(cudaDeviceSynchronize(), "upload");
  }
  std::vector<T> download(std::size_t first, std::size_t count) const {
    std::vector<T> values(count);
    cuda::check(cudaDeviceSynchronize(), "the kernels before a download");
    cuda::check(cudaMemcpy(values.data(), data_ + first, count * sizeof(T), cudaMemcpyDeviceToHost),
                "download");
    return values;
  }

 private:
  void swap(DeviceArray& other) {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace coppice::bench
