// Text to token ids and back, whatever file a model folder keeps its vocabulary in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace coppice {

/// Gemma's quarter of a million pieces take 34 MB. A parsed file may take thirty times its size.
inline constexpr std::uintmax_t largest_tokenizer_file = std::uintmax_t{64} << 20;

/// A stretch of a text that several wrote.
struct TextPart {
  std::string_view text;
  /// A user typed it: no special token is made of it or of a part of it, whatever it spells.
  bool typed = false;
};

/// Safe to call from several threads at once.
class Tokenizer {
 public:
  /// Reads DIR/tokenizer.json, else DIR/tokenizer.model (sentencepiece), and what the folder's
  /// other files say of it (models/settings); of a GGUF file what its metadata say. Throws
  /// Error(failure) if there is none, or if a file is corrupt or asks for something that coppice
  /// does not know.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& dir);
  /// Whether the folder holds a file that load() would read; of a GGUF file whether load() knows
  /// its kind of tokenizer.
  static bool is_in(const std::filesystem::path& dir);

  /// Whether load() would make the same pieces of both folders, told from the files' bytes and the
  /// tokens that other files add.
  static bool same_file(const std::filesystem::path& one, const std::filesystem::path& other);

  virtual ~Tokenizer() = default;

  /// What encode() may be told in place of the token before a text: there is none, or it is one of
  /// ordinary text, whichever.
  static constexpr TokenId at_start = -1, after_text = -2;

  /// Token ids of a text, without those that the tokenizer puts around one (see framed()). A
  /// special token that is spelt in the text becomes that token. `before` is the last of the tokens
  /// that the text is appended to: behind ordinary text nothing is put before the first word, and
  /// the text's leading spaces stay; behind a special token it is treated as it would be if one
  /// text spelt both.
  std::vector<TokenId> encode(std::string_view text, TokenId before = at_start) const;
  /// The same, but a special token that is spelt in the text stays text: it is written in other
  /// tokens, at worst the unknown one.
  std::vector<TokenId> encode_typed(std::string_view text, TokenId before = at_start) const;
  /// Token ids of the parts' joined text: special tokens are found only where no byte of them was
  /// typed; all else is split as if one had written it, so that a token may reach from part to
  /// part, but no piece that is special, too, is made of typed bytes. Special means what the file
  /// calls an added token, unless it is only white space (some files leave role marks without the
  /// mark "special"); in a tokenizer.model, control pieces, the unknown one, and tokens that other
  /// files add. Throws Error(usage) if the text is not valid UTF-8, or holds a NUL byte that the
  /// tokenizer would lose.
  virtual std::vector<TokenId> encode(std::span<const TextPart> parts, TokenId before) const = 0;
  std::vector<TokenId> encode(std::span<const TextPart> parts) const {
    return encode(parts, at_start);
  }
  /// Puts around a text what the model expects there: what tokenizer.json's post-processor says,
  /// or for a tokenizer.model its BOS and EOS, as tokenizer_config.json asks for them.
  virtual std::vector<TokenId> framed(std::vector<TokenId> tokens) const = 0;

  /// "tokenizer.json", "tokenizer.model" or "GGUF tokenizer".
  virtual std::string_view file_kind() const = 0;
  /// Ids from 0 up to this one, exclusive, may have a piece.
  virtual std::int32_t pieces() const = 0;
  /// The same without tokens that were added behind the vocabulary, for which some models have no
  /// rows: text that spells one of those is then refused.
  virtual std::int32_t vocabulary_pieces() const { return pieces(); }
  /// A piece as its file spells it; empty for an id without one.
  virtual std::string_view piece(TokenId token) const = 0;
  /// The bytes that a token adds inside a text (nothing for special tokens and ids without a
  /// piece). Not necessarily valid UTF-8 on its own.
  virtual std::string bytes_of(TokenId token) const = 0;
  /// How a text spells an added token (in a tokenizer.model a control piece), shown or not; empty
  /// for all other tokens.
  virtual std::string_view added_text(TokenId token) const = 0;
  /// What the tokens spell as a whole text, without the space that the tokenizer puts before a
  /// first word. Special tokens are left out unless `with_special`.
  virtual std::string decode(std::span<const TokenId> tokens, bool with_special = false) const = 0;
  /// A text of more bytes than this has more than `tokens` tokens. That is told from the longest
  /// piece; a vocabulary without a byte for every byte, or one whose tokenizer rewrites text
  /// before it looks for pieces, may merge or drop any number of bytes, and gets a mebibyte, or
  /// 64 bytes a token if that is more: nobody writes a prompt that shrinks so.
  virtual std::uint64_t most_bytes(std::uint64_t tokens) const = 0;

  /// Throws Error(failure) that names both models and the first difference unless both map the same
  /// ids to the same pieces. Pieces are compared, not files: a tokenizer.model may meet a
  /// tokenizer.json.
  void require_same_pieces(const Tokenizer& other, const std::string& this_name,
                           const std::string& other_name) const;

 private:
  static std::unique_ptr<Tokenizer> open(const std::filesystem::path& dir);

  std::string model_;  ///< that load() was given

 protected:
  /// What kind of piece it is, for a message; compared between tokenizers of one kind of file.
  virtual std::string_view kind_of(TokenId token) const = 0;
  /// most_bytes() for pieces of at most `longest` bytes; `keeps_all`: no byte of a text is lost.
  static std::uint64_t bytes_at_most(std::uint64_t tokens, std::uint64_t longest, bool keeps_all);
};

}  // namespace coppice
