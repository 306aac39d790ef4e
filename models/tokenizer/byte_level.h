// The alphabet of byte-level vocabularies: one printable character for each byte.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace coppice::tokenization {

/// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and on.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();
  /// The character, in UTF-8, of a byte.
  std::string_view of(unsigned char byte) const { return characters_[byte]; }
  std::string spelt(std::string_view bytes) const;
  /// The bytes that a piece spells; the piece itself if a character of it is not in the alphabet.
  std::string bytes_of(std::string_view piece) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> characters_;
  std::array<int, 0x200> byte_of_;  ///< by code point; -1: none
};

}  // namespace coppice::tokenization
