// Ranks that are processes, whose sums go through rank 0.
#pragma once

#include <memory>

#include "kernels/communicator.h"

namespace coppice {
struct RankGroup;
}

namespace coppice::cpu {

/// The communicator of the group's rank that is here. Sums add by rank, from 0 on: the same bits as
/// those of thread_communicator.h.
std::unique_ptr<Communicator> make_link_communicator(const RankGroup& group);

}  // namespace coppice::cpu
