// How probable a model finds a text that is given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coppice.h"

namespace coppice::server {

/// Logarithms (base e) of each token's probability behind those before it, at temperature 1, with
/// the `top` most probable ones. The first token has none: its logprob is 0. Other texts go on
/// between passes. `prompt` is not empty. Throws Error(failure) if there are too few KV slots.
std::vector<TokenLogprob> prompt_logprobs(Engine& engine, std::span<const TokenId> prompt,
                                          std::int32_t top);

}  // namespace coppice::server
