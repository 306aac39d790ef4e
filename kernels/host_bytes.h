// Bytes on the host that packing and uploads take, wherever they lie.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

namespace coppice {

/// A view: the memory, or what the function reads from, outlives it.
class HostBytes {
 public:
  /// Fills `to` with the bytes from `offset` on. Throws if it cannot. Several threads may call it.
  using Read = std::function<void(std::size_t offset, std::span<std::byte> to)>;

  /// Memory of any alignment.
  HostBytes(const void* memory = nullptr) : memory_(static_cast<const std::byte*>(memory)) {}
  HostBytes(Read read) : read_(std::move(read)) {}

  void read(std::size_t offset, std::span<std::byte> to) const {
    if (read_) {
      read_(offset, to);
    } else if (!to.empty()) {
      std::memcpy(to.data(), memory_ + offset, to.size());
    }
  }

 private:
  const std::byte* memory_ = nullptr;
  Read read_;
};

}  // namespace coppice
