// Loading code and recording passes keep out of each other's way.
#pragma once

#include <shared_mutex>

namespace coppice::cuda {

/// Returns the process's lock. Who loads code beside passes holds it alone, who records a pass
/// shares it: CUDA breaks off a recording on one thread when another one loads a kernel or moves
/// memory (seen on an H200, driver of CUDA 13.0: cudaErrorStreamCaptureInvalidated, or a failed
/// library product).
inline std::shared_mutex& code_loading() {
  static std::shared_mutex mutex;
  return mutex;
}

}  // namespace coppice::cuda
