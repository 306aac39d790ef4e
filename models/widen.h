// Values of narrow types as floats.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/device.h"

namespace coppice {

/// Writes `values`, stored as `dtype`, to `out`: values.size() / size_of(dtype) floats, exactly.
void widen(std::span<const std::byte> values, DType dtype, float* out);

}  // namespace coppice
