// Memory that runs out at one allocation. The program must link failing_allocation.cc.
#pragma once

#include <cstddef>

namespace coppice::testing {

/// How many allocations of this thread succeed until one fails; below 0: no end of them.
extern thread_local long allocations_left;
/// Smaller ones are not counted, and succeed.
extern thread_local std::size_t smallest_counted;

}  // namespace coppice::testing
