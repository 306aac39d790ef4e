// Whether what was timed says anything of later passes.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace coppice {

/// Watches a device from now on, which outlives it.
class WatchedPasses {
 public:
  explicit WatchedPasses(const Device& device) : device_(device), before_(device.preparations()) {}
  /// Whether later passes take what those since then took: none of them was recorded, or chose its
  /// products' code (Device::preparations()).
  bool were_usual() const { return device_.preparations() == before_; }

 private:
  const Device& device_;
  const std::int64_t before_;
};

}  // namespace coppice
