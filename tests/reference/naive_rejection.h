// Recursive rejection as printed (DySpec's Algorithm 3, its slips corrected): residual vectors in
// double, normalised after every refusal, where verify/rejection-inl.h keeps a scalar.
#pragma once

#include <memory>

#include "verify/acceptance.h"

namespace coppice::testing {

/// Takes the same trees and numbers as make_rejection_rule().
std::unique_ptr<AcceptanceRule> make_naive_rejection_rule();

}  // namespace coppice::testing
