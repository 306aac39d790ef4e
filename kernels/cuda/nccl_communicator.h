// Ranks that are GPUs, connected by NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/communicator.h"

namespace coppice::cuda {

/// A rank's GPU, and the stream that its passes run on.
struct RankPlace {
  int device = 0;
  cudaStream_t stream = nullptr;
};

/// Connects GPUs of this process; element r is rank r's. Throws Error(failure) without NCCL, and
/// where the GPUs do not reach each other.
std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const RankPlace> places);

}  // namespace coppice::cuda
