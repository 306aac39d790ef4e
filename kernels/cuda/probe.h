#pragma once

namespace coppice::cuda {

/// Whether this build holds machine code, or PTX that the driver can compile, for the first GPU.
bool kernels_fit_device();

}  // namespace coppice::cuda
