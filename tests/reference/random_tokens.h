// Texts of any tokens.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/types.h"

namespace coppice::testing {

inline std::vector<TokenId> random_tokens(std::size_t count, std::int64_t vocab,
                                          std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab));
  }
  return tokens;
}

}  // namespace coppice::testing
