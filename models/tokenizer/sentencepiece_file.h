// What a sentencepiece model file says, read and checked before the library sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

enum class PieceKind : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

const char* name_of(PieceKind kind);

struct SentencepieceFile {
  struct Piece {
    std::string text;
    PieceKind kind = PieceKind::normal;
    float score = 0.0f;
  };
  std::vector<Piece> pieces;
  bool add_dummy_prefix = true;          ///< text begins with a word-boundary mark
  bool remove_extra_whitespaces = true;  ///< runs of spaces collapse
  bool merges_pairs = false;             ///< a BPE; else a Unigram or another kind
  bool byte_fallback = false;            ///< what no piece spells becomes bytes, not unknown
  bool rewrites = false;                 ///< text is mapped to a normal form first
  std::string unknown_surface = " \xE2\x81\x87 ";
};

/// Reads a ModelProto. The library trusts its input in places (it logs, aborts or reads out of
/// bounds on some damaged files), so everything it relies on is checked here: the wire format,
/// pieces that are neither empty nor repeated, one unknown piece, finite scores, both specs,
/// and every state that the character map's trie can reach. Throws Error(failure) naming `file`.
SentencepieceFile read_sentencepiece(std::string_view bytes, const std::string& file);

}  // namespace coppice
