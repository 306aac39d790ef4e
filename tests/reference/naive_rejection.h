// Recursive rejection as printed (DySpec's Algorithm 3, its slips corrected): residual vectors in
// double, normalised after every refusal, where verify/rejection-inl.h keeps a scalar.
#pragma once

#include <memory>

#include "verify/verifier.h"

namespace coppice::testing {

/// Takes the same trees and numbers as make_rejection_verifier().
std::unique_ptr<Verifier> make_naive_rejection_verifier();

}  // namespace coppice::testing
