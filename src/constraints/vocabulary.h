// The bytes of a vocabulary's tokens, as a trie that machines walk over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace coppice {
class Tokenizer;
}

namespace coppice::constraints {

/// The byte that stands before an added token's text in its bytes. No UTF-8 has it, so that no text
/// spells the token, and a constraint can ask for it alone (%token in gbnf.h).
inline constexpr char added_token_mark = '\xff';

/// Immutable; made once for each tokenizer and shared between constraints and threads.
class Vocabulary {
 public:
  /// Tokens' bytes by id. A token without bytes (special, control, unused) matches no text. Tokens
  /// in `ends` end a text, and match none either.
  Vocabulary(std::span<const std::string> bytes, std::span<const TokenId> ends);
  /// A tokenizer's pieces. Tokens that were added to its vocabulary match no text, whatever they
  /// spell, unless they are only white space: their bytes begin with added_token_mark. The
  /// tokenizer must outlive the vocabulary.
  Vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> ends);

  std::int32_t size() const { return static_cast<std::int32_t>(bytes_.size()); }
  /// 32-bit words of a mask.
  std::size_t words() const { return (bytes_.size() + 31) / 32; }
  /// Empty for tokens that match no text.
  std::string_view bytes(TokenId token) const { return bytes_[static_cast<std::size_t>(token)]; }
  bool is_end(TokenId token) const;
  std::span<const TokenId> ends() const { return ends_; }
  /// Bytes in tokens, as the tokenizer spells them behind other text; added tokens, and all bytes
  /// without a tokenizer, by the longest token at each place. May lack a rest that no token spells.
  std::vector<TokenId> spell(std::string_view bytes) const;
  /// Whether some token has more bytes than `bytes` and begins with them.
  bool has_longer(std::string_view bytes) const;
  /// Whether each byte that UTF-8 may have is a token of its own, so that whatever has begun can be
  /// ended.
  bool has_all_bytes() const { return has_all_bytes_; }
  /// Whether a token spells exactly these bytes.
  bool has(std::string_view bytes) const;

  /// The trie's nodes in depth-first order; node 0 is the root.
  struct Node {
    std::uint32_t end = 0;          ///< first node behind its subtree
    std::uint32_t first_token = 0;  ///< of tokens(); those of the node end at the next node's
    std::uint16_t depth = 0;        ///< bytes from the root
    unsigned char byte = 0;         ///< that leads to it
    bool is_plain = false;          ///< all tokens below it, its own included, are plain
  };
  /// With one node more at its end, for its first_token.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  std::size_t deepest() const { return deepest_; }

  /// Plain tokens are whole characters that JSON strings may hold as they are: no quote, backslash
  /// or control character. Most tokens are. Sorted by the number of characters.
  std::span<const TokenId> plain_tokens() const { return plain_; }
  /// By a number of characters: how many plain tokens have as many or fewer.
  std::span<const std::uint32_t> plain_ends() const { return plain_ends_; }
  /// A bit for each plain token.
  std::span<const std::uint32_t> plain_bits() const { return plain_bits_; }
  bool is_plain(TokenId token) const {
    const auto t = static_cast<std::uint32_t>(token);
    return (plain_bits_[t / 32] >> (t % 32) & 1) != 0;
  }

 private:
  void make_trie();
  void find_plain_tokens();
  /// The node that spells the bytes; 0 if there is none.
  std::uint32_t find(std::string_view bytes) const;
  /// Takes the longest token off the front; false if there is none.
  bool take_longest(std::string_view& bytes, std::vector<TokenId>& spelt) const;

  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  std::function<std::vector<TokenId>(std::string_view)> spell_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> plain_;
  std::vector<std::uint32_t> plain_ends_, plain_bits_;
  std::size_t deepest_ = 0;
  bool has_all_bytes_ = false;
};

}  // namespace coppice::constraints
