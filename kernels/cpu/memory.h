// Memory of the CPU device.
#pragma once

#include "kernels/device.h"

namespace coppice::cpu {

/// Zero-filled, aligned to 64 bytes, large buffers to huge pages. Throws Error(failure).
DeviceBuffer allocate(std::size_t bytes, const char* purpose);

/// The same, but pages of a large buffer are taken from the system as they are first written to.
DeviceBuffer reserve(std::size_t bytes, const char* purpose);

/// Throws Error(failure) if that much more memory cannot be had now. For calls of libraries that do
/// not survive without; nothing is kept.
void require_room(std::size_t bytes, const char* purpose);

}  // namespace coppice::cpu
