// A text that is being cut into words, from which no token reaches into the next.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/json_place.h"

namespace coppice::tokenization {

struct Word {
  std::size_t begin = 0, end = 0;
  bool at_start = false;   ///< begins where the whole text begins
  bool continues = false;  ///< goes on with a word that stands before the text
};

struct Words {
  std::string text;
  std::vector<Word> words;
  std::string_view of(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
};

/// What becomes of the delimiters between words.
enum class Delimiters { removed, isolated, contiguous, merged_with_previous, merged_with_next };
Delimiters read_delimiters(const JsonPlace& place);

/// A stretch of one word: a delimiter, or what stands between two.
struct Stretch {
  std::size_t begin = 0, end = 0;
  bool delimiter = false;
};

/// Appends the words that `stretches`, which cover `word`, make.
void append_words(const Word& word, std::vector<Stretch>& stretches, Delimiters rule,
                  std::vector<Word>& out);

}  // namespace coppice::tokenization
