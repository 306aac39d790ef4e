// Models of tokenizer.json: they cut a word into pieces.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/vocabulary.h"

namespace coppice::tokenization {

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  /// Appends the word's pieces.
  virtual void encode(std::string_view word, std::vector<TokenId>& out) const = 0;
  /// Bytes at the word's beginning that no piece reaches beyond: they may be encoded alone.
  virtual std::size_t independent_bytes(std::string_view word) const { return word.size(); }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Whether each byte of a word is in one of its pieces. `spelt`: words come in the byte alphabet.
  bool keeps_all_text(bool spelt) const;
  TokenId unknown() const { return unknown_; }  ///< -1: none
  /// Appends the text's byte pieces; false if it has not one for every byte.
  bool append_bytes(std::string_view text, std::vector<TokenId>& out) const;

 protected:
  explicit SubwordModel(const JsonPlace& place);

  Vocabulary vocabulary_;
  TokenId unknown_ = -1;
  std::vector<TokenId> byte_pieces_;  ///< empty without byte_fallback
};

/// Reads "model".
std::unique_ptr<SubwordModel> read_subword_model(const JsonPlace& place);
std::unique_ptr<SubwordModel> read_bpe(const JsonPlace& place);
std::unique_ptr<SubwordModel> read_unigram(const JsonPlace& place);

}  // namespace coppice::tokenization
