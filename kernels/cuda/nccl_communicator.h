// Ranks that are GPUs, connected by NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>
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

/// Names a group of processes that have a GPU each.
std::string new_nccl_group_id();
/// Connects this process's GPU, which is the current one, to those of a group; its passes run on
/// `stream`. Throws Error(failure) likewise, and if a process is late or gives up.
std::unique_ptr<Communicator> join_nccl_group(const RankGroup& group, cudaStream_t stream);

}  // namespace coppice::cuda
