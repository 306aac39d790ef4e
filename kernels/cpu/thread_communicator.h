// Ranks that are threads of one process and share its memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/rank_meeting.h"

namespace coppice::cpu {

/// Element r is rank r's. Sums add by rank, from 0 on.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int ranks, std::chrono::milliseconds patience = usual_patience);

}  // namespace coppice::cpu
