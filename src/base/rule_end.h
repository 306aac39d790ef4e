// Where a text under rules has ended.
#pragma once

#include <bit>
#include <cstdint>

#include "base/token_tree.h"

namespace coppice {

/// Whether a node holds a token that ends the text: rules let nothing but end tokens follow it, and
/// these lead nowhere else. (In another state all of whose tokens lead back to it a text could
/// never end, and rules have none.) Nothing is to be drafted below: it is no part of the text.
inline bool ends_text(const TokenTree& tree, std::int32_t node) {
  const auto n = static_cast<std::size_t>(node);
  const auto mask = tree.parent[n] < 0 ? nullptr : tree.mask(node);
  constexpr std::int32_t most_end_tokens = 64;
  if (mask == nullptr || mask->allowed > most_end_tokens || !mask->has(tree.token[n])) return false;
  const std::int32_t state = tree.rule_state[n];
  for (std::size_t word = 0; word < mask->words.size(); ++word) {
    for (std::uint32_t bits = mask->words[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<TokenId>(word * 32) + std::countr_zero(bits);
      if (tree.rules->advance(state, token) != state) return false;
    }
  }
  return true;
}

}  // namespace coppice
