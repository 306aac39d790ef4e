// What logprobs say of one token.
#pragma once

#include <cstdint>
#include <span>

#include "coppice.h"

namespace coppice {

/// Of `probs` [vocab]: the token's, and the `top` most probable ones, best first; tokens of
/// probability 0 are left out.
TokenLogprob logprob_of(std::span<const float> probs, TokenId token, std::int32_t top);

}  // namespace coppice
