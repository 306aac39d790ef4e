#pragma once

#include <cuda_runtime_api.h>

namespace coppice::cuda {

/// Opens the current GPU and looks for machine code, or PTX that the driver can compile.
/// cudaErrorNoKernelImageForDevice where this build holds none.
cudaError_t probe_device();

}  // namespace coppice::cuda
