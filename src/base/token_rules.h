// What rules a text's tokens beside the models.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/token_id.h"

namespace coppice {

/// Which tokens may follow a text.
struct TokenMask {
  std::vector<std::uint32_t> words;  ///< bit t % 32 of word t / 32: token t may follow
  std::int32_t allowed = 0;          ///< how many may
  TokenId only = -1;                 ///< the one that may, where `allowed` is 1

  bool has(TokenId token) const {
    const auto t = static_cast<std::uint32_t>(token);
    return t / 32 < words.size() && (words[t / 32] >> (t % 32) & 1) != 0;
  }
};

/// Says by a text's state which tokens may follow it. A state is a function of the tokens alone, so
/// that a tree's nodes have one each, and whoever samples after a node masks by its own: the draft,
/// so that D is what was drawn from, and the target, whose masked distribution the text then has.
/// All functions may be called from several threads at once.
class TokenRules {
 public:
  virtual ~TokenRules() = default;
  /// Of the empty text.
  virtual std::int32_t start() const = 0;
  /// Behind one more token; below 0 if it may not follow.
  virtual std::int32_t advance(std::int32_t state, TokenId token) const = 0;
  /// Never empty; null: every token may. What was handed out stays valid.
  virtual std::shared_ptr<const TokenMask> mask(std::int32_t state) const = 0;
  /// Tokens that spell what every text goes on with, for a proposal; none where texts differ.
  virtual std::vector<TokenId> forced(std::int32_t state) const = 0;
};

}  // namespace coppice
