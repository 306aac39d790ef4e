// Text to token ids and back, over sentencepiece.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace coppice {

class Tokenizer {
 public:
  /// Reads DIR/tokenizer.model. Throws Error(failure): missing (a folder with only
  /// tokenizer.json is named as such, with --prompt-ids as the remedy) or corrupt.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& dir);
  ~Tokenizer();

  std::int32_t pieces() const;
  /// Throws Error(usage) where text is not valid UTF-8 or holds a NUL byte that the model
  /// cannot represent. No BOS is added.
  std::vector<TokenId> encode(std::string_view text) const;
  /// A text of more bytes than this has more than `tokens` tokens. That is told from the longest
  /// piece; a vocabulary without a byte for every byte, or one whose tokenizer rewrites text
  /// before it looks for pieces, may merge or drop any number of bytes, and gets a mebibyte, or
  /// 64 bytes a token if that is more: nobody writes a prompt that shrinks so.
  std::uint64_t most_bytes(std::uint64_t tokens) const;
  /// The bytes that a token adds to a text (a space for the word-boundary mark; one byte for a
  /// byte piece; nothing for control pieces and ids past the pieces). Not necessarily valid
  /// UTF-8 on its own.
  std::string bytes_of(TokenId token) const;
  /// Bytes of a whole continuation. `at_text_start`: the first piece opens the text, so that
  /// the space which sentencepiece puts before the first word is dropped.
  std::string decode(const std::vector<TokenId>& tokens, bool at_text_start) const;

  /// Throws Error(failure) that names the first difference unless both map the same ids to the
  /// same pieces. Pieces are compared, not files.
  void require_same_pieces(const Tokenizer& other, const std::string& this_name,
                           const std::string& other_name) const;

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
