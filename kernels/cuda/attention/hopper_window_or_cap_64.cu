#include "kernels/cuda/attention/hopper_variants.cuh"

namespace coppice::cuda::hopper {

template bool prepare_window_or_cap<64>();
template void launch_window_or_cap<64>(const AttentionLaunch&, const Arguments&, std::int32_t,
                                       cudaStream_t);

}  // namespace coppice::cuda::hopper
