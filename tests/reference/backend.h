// The devices that one test body runs on.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "base/error.h"
#include "kernels/device.h"

namespace coppice::testing {

struct Backend {
  const char* name;
  std::function<std::unique_ptr<Device>()> make;
};
inline void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

inline std::unique_ptr<Device> cpu(DType compute, DType kv = DType::f32) {
  return make_cpu_device({.threads = 2, .compute = compute, .kv = kv});
}

/// The GPU, where there is one.
inline const Backend cuda = {"cuda", [] { return make_cuda_device({}); }};

/// Why a backend cannot run here (no such processor instructions, no GPU); empty where it can.
inline std::string lacking(const Backend& backend) {
  std::string why_not;
  if (std::string(backend.name) == "cuda") {
    return has_cuda_device(&why_not) ? "" : why_not;
  }
  try {
    backend.make();
    return "";
  } catch (const Error& error) {
    return error.kind() == ErrorKind::usage ? error.what() : "";
  }
}

}  // namespace coppice::testing
