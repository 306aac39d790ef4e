// Tokens that are found in a text before it is cut into words.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/byte_trie.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/normalizers.h"
#include "models/tokenizer/vocabulary.h"

namespace coppice::tokenization {

/// Reads "added_tokens" of a tokenizer.json.
std::vector<AddedTokenSetting> read_added_tokens(const JsonPlace& place);

struct AddedToken {
  std::string content;
  std::string normal;  ///< what is looked for, and what it is written as: normalized, or as it is
  TokenId id = -1;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
  /// Nothing that a user types may become this token: all but white space. The flag "special" does
  /// not tell, since some files leave marks of roles and turns without it.
  bool steers = false;
};

/// A stretch of a text: one token, or text between tokens (`token` is -1).
struct TextStretch {
  std::size_t begin = 0, end = 0;
  TokenId token = -1;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Adds the tokens in their order. Ids must be those of `vocabulary`, or count on from its end;
  /// throws Error(failure) naming the setting for any other one. `file` has the normalizers.
  AddedTokens(std::span<const AddedTokenSetting> settings, const Vocabulary& vocabulary,
              const Normalizers& normalizers, const std::string& file);

  /// Which tokens are looked for: in a text as it was given, or in one that is normalized. In a
  /// text that was typed in part all are looked for as they are written.
  enum class Pass { given, given_in_part, normalized };
  /// Whether a token may stand at [begin, end).
  using Allowed = std::function<bool(const AddedToken&, std::size_t begin, std::size_t end)>;
  /// Cuts `text`, leftmost and longest first. Stretches cover it, but for white space that two
  /// tokens both claim. `before` is text that stands before it.
  std::vector<TextStretch> split(std::string_view text, Pass pass, const Allowed& allowed,
                                 std::string_view before = {}) const;

  const AddedToken* find(TokenId id) const;
  TokenId id(const std::string& content) const;  ///< -1: none of that text
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  TokenId ids_end() const { return ids_end_; }  ///< the highest id, plus one

 private:
  struct Finder {
    ByteTrie trie;                 ///< to indices of tokens_
    std::array<bool, 256> starts;  ///< bytes that tokens begin with
    bool empty = true;
  };
  void add(const AddedTokenSetting& setting, const Vocabulary& vocabulary,
           const Normalizers& normalizers, Allowance& allowance, std::int64_t& next_id);
  Finder finder(Pass pass) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  std::array<Finder, 3> finders_;  ///< by Pass
  TokenId ids_end_ = 0;
};

}  // namespace coppice::tokenization
