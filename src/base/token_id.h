// What a token is called.
#pragma once

#include <cstdint>

namespace coppice {

/// A vocabulary entry. Negative values never name a token.
using TokenId = std::int32_t;

}  // namespace coppice
