// How typed text is spelt where the model itself would find a piece that steers.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"

namespace coppice::tokenization {

/// Whether a piece of this text may steer a model: not white space, spelt with word marks or not,
/// and of several characters unless the file calls it special. A single character has no other
/// spelling.
bool may_steer(std::string_view text, bool special);

/// Other tokens for pieces that typed text must not become. A subword model knows nothing of
/// special tokens: it finds them like all its pieces. What it finds is spelt by the piece's first
/// character and the rest, each as the model spells it.
class Respelling {
 public:
  /// Appends the model's tokens of a text that stands inside another one.
  using Encode = std::function<void(std::string_view text, std::vector<TokenId>& out)>;
  /// A piece's text, as the model sees text, and its id.
  using Piece = std::pair<std::string_view, TokenId>;

  Respelling() = default;
  /// `bytes` appends byte pieces of a single character, which has no other spelling, or nothing.
  /// Where nothing spells one of `pieces` the unknown one stands for it (-1: it is dropped).
  Respelling(std::vector<Piece> pieces, TokenId unknown, const Encode& encode, const Encode& bytes);

  bool has(TokenId token) const { return spellings_.contains(token); }
  bool has_any(const std::vector<TokenId>& tokens, std::size_t from) const;
  void append(TokenId token, std::vector<TokenId>& out) const;
  /// Respells what has to be among tokens[from] and those behind it.
  void apply(std::vector<TokenId>& tokens, std::size_t from) const;

 private:
  std::unordered_map<TokenId, std::vector<TokenId>> spellings_;  ///< hold none of its keys
};

}  // namespace coppice::tokenization
