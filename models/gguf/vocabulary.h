// The tokens of a GGUF file, by its metadata tokenizer.ggml.*.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/sentencepiece_file.h"

namespace coppice {

class GgufVocabulary {
 public:
  /// The file must outlive the vocabulary, which is empty if the file has none. Throws
  /// Error(failure) for lists that are of the wrong kind or of different lengths.
  explicit GgufVocabulary(const GgufFile& file);

  TokenId size() const;
  const std::string& text(TokenId token) const;
  /// As sentencepiece numbers them; normal where the file names no kinds.
  PieceKind kind(TokenId token) const;
  /// Whether it stands for one byte of a text, whatever the metadata use it for.
  bool is_byte(TokenId token) const;
  /// The token that the metadata name, e.g. "bos" of tokenizer.ggml.bos_token_id, or for a
  /// sentencepiece vocabulary without that key the usual one. Ids that no token has are none.
  std::optional<TokenId> named(const std::string& name) const;
  /// Tokens that end an answer: those that the metadata name, and those whose text is a known end
  /// of a turn. Many files name but one of several.
  std::vector<TokenId> ends() const;

  /// tokenizer.ggml.model: "gpt2", "llama", ...; empty if the file has no tokenizer.
  const std::string& model() const { return model_; }
  std::string pre() const;  ///< tokenizer.ggml.pre, of a "gpt2"
  /// Whether `side`, "bos" or "eos", is put around a text. A byte is not.
  bool adds(const std::string& side) const;

 private:
  const GgufFile& file_;
  std::string model_;
  const nlohmann::json* tokens_ = nullptr;
  const nlohmann::json* kinds_ = nullptr;
};

}  // namespace coppice
