// Memory that runs out at one allocation. The program must link failing_allocation.cc.
#pragma once

namespace coppice::testing {

/// How many allocations of this thread succeed until one fails; below 0: no end of them.
extern thread_local long allocations_left;

}  // namespace coppice::testing
