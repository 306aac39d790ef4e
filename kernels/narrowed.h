// Weights in a format that a device has no products for.
#pragma once

#include "kernels/host_bytes.h"
#include "kernels/weight_format.h"

namespace coppice {

/// The same numbers in bf16, to the nearest, ties to even. What is asked for begins and ends with a
/// block of `stored`.
HostBytes narrowed_to_bf16(HostBytes stored, WeightFormat format);

}  // namespace coppice
