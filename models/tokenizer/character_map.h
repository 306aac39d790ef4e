// sentencepiece's map from character sequences to their normal forms: a trie, then its strings.
#pragma once

#include <string>
#include <string_view>

namespace coppice::tokenization {

/// A 4-byte length, a double-array trie (darts-clone) of that length, strings that end in NUL.
class CharacterMap {
 public:
  CharacterMap() = default;
  /// `bytes` must be sound.
  explicit CharacterMap(std::string bytes);
  /// Whether every walk through the trie stays inside it and ends at a string, of few bytes: a
  /// text may hold what becomes it at every place.
  static bool is_sound(std::string_view bytes);
  /// What the shortest sequence in the map that `text` begins with becomes; nullptr: there is none.
  const char* find(std::string_view text) const;

 private:
  std::string bytes_;
};

}  // namespace coppice::tokenization
