// The devices that one test body runs on.
#pragma once

#include <functional>
#include <memory>
#include <ostream>

#include "kernels/device.h"

namespace coppice::testing {

struct Backend {
  const char* name;
  std::function<std::unique_ptr<Device>()> make;
};
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

inline std::unique_ptr<Device> cpu(CpuOptions::Compute compute) {
  return make_cpu_device({.threads = 2, .compute = compute});
}

}  // namespace coppice::testing
