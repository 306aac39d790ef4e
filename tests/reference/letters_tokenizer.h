// Tokenizers for tiny models, in which every piece is one letter: each text has one way to be
// tokens, so that what a model writes is what its text encodes to.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "reference/sentencepiece_proto.h"

namespace coppice::testing {

inline constexpr TokenId letters_vocabulary = 96;  ///< as many as a TinyModel has
inline constexpr const char* word_mark = "\xE2\x96\x81";

/// <unk>, <s>, </s>, the word mark, a to z, 64 letters of Latin Extended-A, A and B, by id. The
/// token `special`, if it is one of them, is "<|end|>" instead.
inline std::vector<std::string> letters_pieces(TokenId special) {
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>", word_mark};
  for (char letter = 'a'; letter <= 'z'; ++letter) pieces.emplace_back(1, letter);
  for (int i = 0; i < 64; ++i) pieces.push_back({'\xC4', static_cast<char>(0x80 + i)});
  pieces.insert(pieces.end(), {"A", "B"});
  if (special >= 0) pieces[static_cast<std::size_t>(special)] = "<|end|>";
  return pieces;
}

/// A tokenizer.json. `shown`: "<|end|>" is an added token that is not special.
inline nlohmann::json letters_tokenizer(TokenId special,
                                        const nlohmann::json& pre_tokenizer = nullptr,
                                        const nlohmann::json& normalizer = nullptr,
                                        bool shown = false) {
  using Json = nlohmann::json;
  Json vocab = Json::object(), added = Json::array();
  TokenId id = 0;
  for (const std::string& piece : letters_pieces(special)) {
    if (id == 1 || id == 2 || id == special) {
      added.push_back({{"id", id},
                       {"content", piece},
                       {"special", id != special || !shown},
                       {"normalized", false}});
    }
    vocab[piece] = id++;
  }
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"String", word_mark}}}, {"content", " "}};
  return {{"added_tokens", added},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"decoder", {{"type", "Sequence"}, {"decoders", {spaces, {{"type", "Fuse"}}}}}},
          {"model",
           {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", Json::array()}}}};
}

/// A Metaspace pre-tokenizer for it.
inline nlohmann::json metaspace(const std::string& scheme) {
  return {{"type", "Metaspace"},
          {"replacement", word_mark},
          {"prepend_scheme", scheme},
          {"split", false}};
}

/// Normalizers for it: one that makes word marks of a text's spaces, and one that puts a word mark
/// before the text, too.
inline nlohmann::json spaces_to_marks() {
  return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", word_mark}};
}
inline nlohmann::json prepend_mark() {
  return {{"type", "Sequence"},
          {"normalizers", {{{"type", "Prepend"}, {"prepend", word_mark}}, spaces_to_marks()}}};
}

/// The same pieces in a tokenizer.model, which begins a text with a word mark.
inline std::string letters_model(TokenId special) {
  SentencepieceProto proto;
  TokenId id = 0;
  for (const std::string& piece : letters_pieces(special)) {
    proto.piece(piece, id == 0                               ? PieceKind::unknown
                       : id == 1 || id == 2 || id == special ? PieceKind::control
                                                             : PieceKind::normal);
    ++id;
  }
  return proto.file();
}

}  // namespace coppice::testing
