// Memory that runs out at one allocation. The program must link failing_allocation.cc.
#pragma once

#include <cstddef>

namespace coppice::testing {

/// How many allocations of this thread succeed until one fails; below 0: no end of them.
extern thread_local long allocations_left;
/// Whether all later ones fail, too, until allocations_left is set again.
extern thread_local bool later_ones_fail;
/// Smaller ones are not counted, and succeed.
extern thread_local std::size_t smallest_counted;

}  // namespace coppice::testing
