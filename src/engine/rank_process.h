// Engines whose target has ranks in other processes.
#pragma once

#include <functional>
#include <memory>

#include "coppice.h"
#include "kernels/device.h"
#include "models/remote_ranks.h"

namespace coppice {

/// Throws Error(usage) for rank options that do not go together. Settles nothing.
void check_rank_options(const EngineOptions& options);

/// Waits at the options' rank_address for the target's other ranks; null where they are of this
/// process. Throws as RemoteRanks.
std::unique_ptr<RemoteRanks> await_ranks(const EngineOptions& options, const Device& device);

/// Joins the engine that waits at options.rank_address, and has a rank of its target until that
/// engine ends. Of the options only target, rank_..., threads, devices, gpu_memory..., and progress
/// are looked at: rank 0 says the others. Calls joined(rank, ranks) once rank 0 has admitted it.
/// Throws Error(failure) if any rank fails.
void serve_rank(const EngineOptions& options,
                const std::function<void(int rank, int ranks)>& joined);

}  // namespace coppice
