// A device that counts: models built on it take no memory, and run nothing.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace coppice::cuda {

/// For the current CUDA device.
std::unique_ptr<Device> make_memory_planner();

}  // namespace coppice::cuda
