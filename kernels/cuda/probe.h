#pragma once

#include <cuda_runtime_api.h>

namespace coppice::cuda {

/// Opens the current GPU and looks for machine code, or PTX that the driver can compile.
/// cudaErrorNoKernelImageForDevice where this build holds none.
cudaError_t probe_device();
/// The PTX version that this build's code for the current GPU was made from, 90 for compute
/// capability 9.0; 0 where it does not say.
int code_version();

}  // namespace coppice::cuda
