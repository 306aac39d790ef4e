// Whether what was timed says anything of later passes.
#pragma once

#include "kernels/device.h"

namespace coppice {

/// Watches a device from now on, which outlives it.
class WatchedPasses {
 public:
  explicit WatchedPasses(const Device& device) : device_(device), before_(device.preparations()) {}
  /// Whether later passes take what those since then took: none of them was recorded, or chose its
  /// products' code (Device::preparations()).
  bool were_usual() const { return device_.preparations().passes == before_.passes; }
  /// Seconds that they spent on that.
  double preparing() const { return device_.preparations().seconds - before_.seconds; }

 private:
  const Device& device_;
  const Preparations before_;
};

}  // namespace coppice
