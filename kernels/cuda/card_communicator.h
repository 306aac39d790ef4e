// Ranks that share one GPU. They gain nothing by it: split models are tested so where there is no
// second one.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "kernels/communicator.h"

namespace coppice::cuda {

/// Element r is rank r's, whose passes run on streams[r] of the current GPU and are not recorded.
/// Ranks' streams wait for each other by events, and no kernel waits for another one, so they need
/// not run at the same time.
std::vector<std::unique_ptr<Communicator>> make_card_communicators(
    std::span<const cudaStream_t> streams, std::chrono::milliseconds patience);

}  // namespace coppice::cuda
