// In which order the requests of a call begin.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coppice.h"

namespace coppice {

/// Indices of the requests, those whose prompts begin alike one after the other: depth-first in the
/// tree of the prompts, siblings in the order given. Each prefix is then computed once if the
/// memory holds the longest request (Zheng et al., SGLang, 2024: theorem 3.1), whatever comes
/// later. Prompts that have little in common stay where they are, and so do requests that continue
/// a sequence.
std::vector<std::size_t> opening_order(std::span<const Request> requests);

}  // namespace coppice
