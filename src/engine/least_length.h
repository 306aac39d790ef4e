// A text that may not end before it has so many tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_rules.h"

namespace coppice {

/// Takes the tokens that end a text from what others allow, until it has `least` tokens. Where that
/// would leave nothing, the text may end. A state is the number of tokens, as far as that matters,
/// with a state of the others.
class LeastLength final : public TokenRules {
 public:
  /// `others`: null, everything may follow; else they outlive this.
  LeastLength(const TokenRules* others, std::int64_t vocab_size, std::vector<TokenId> ends,
              std::int32_t least);

  std::int32_t start() const override;
  std::int32_t advance(std::int32_t state, TokenId token) const override;
  std::shared_ptr<const TokenMask> mask(std::int32_t state) const override;
  std::vector<TokenId> forced(std::int32_t state) const override;

  const TokenRules* inner() const { return others_; }
  /// The state of the others (0 without them) where the text has as many tokens; else nothing.
  std::optional<std::int32_t> once_reached(std::int32_t state) const;

 private:
  struct State {
    std::int32_t tokens, inner;
  };
  State at(std::int32_t state) const;
  std::int32_t number_of(State state) const;
  std::shared_ptr<const TokenMask> without_ends(std::int32_t inner) const;

  const TokenRules* const others_;
  const std::int64_t vocab_size_;
  const std::vector<TokenId> ends_;
  const std::int32_t least_;
  mutable std::mutex mutex_;  ///< of what follows
  mutable std::vector<State> states_;
  mutable std::unordered_map<std::int64_t, std::int32_t> numbers_;
  /// By state of the others; the masks stay.
  mutable std::unordered_map<std::int32_t, std::shared_ptr<const TokenMask>> masks_;
};

}  // namespace coppice
