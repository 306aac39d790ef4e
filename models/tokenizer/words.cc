#include "models/tokenizer/words.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::tokenization {

Delimiters read_delimiters(const JsonPlace& place) {
  const std::string& name = place.text();
  if (name == "Removed") return Delimiters::removed;
  if (name == "Isolated") return Delimiters::isolated;
  if (name == "Contiguous") return Delimiters::contiguous;
  if (name == "MergedWithPrevious") return Delimiters::merged_with_previous;
  if (name == "MergedWithNext") return Delimiters::merged_with_next;
  place.refuse(cat("the behavior ", quote(name), " is unknown; fetch the file again"));
}

void append_words(const Word& word, std::vector<Stretch>& stretches, Delimiters rule,
                  std::vector<Word>& out) {
  const auto joins = [&](const Stretch& one, bool previous) {
    return rule == Delimiters::contiguous ? one.delimiter == previous : one.delimiter && !previous;
  };
  std::size_t kept = 0;  // stretches that stand, at the list's beginning
  switch (rule) {
    case Delimiters::isolated:
      kept = stretches.size();
      break;
    case Delimiters::removed:
      for (const Stretch& one : stretches) {
        if (!one.delimiter) stretches[kept++] = one;
      }
      break;
    case Delimiters::merged_with_next:
      std::reverse(stretches.begin(), stretches.end());
      [[fallthrough]];
    case Delimiters::contiguous:
    case Delimiters::merged_with_previous: {
      bool previous = false;
      for (const Stretch& one : stretches) {
        const bool delimiter = one.delimiter;
        if (kept > 0 && joins(one, previous)) {
          stretches[kept - 1].begin = std::min(stretches[kept - 1].begin, one.begin);
          stretches[kept - 1].end = std::max(stretches[kept - 1].end, one.end);
        } else {
          stretches[kept++] = one;
        }
        previous = delimiter;
      }
      if (rule == Delimiters::merged_with_next) {
        std::reverse(stretches.begin(), stretches.begin() + static_cast<std::ptrdiff_t>(kept));
      }
      break;
    }
  }
  for (std::size_t i = 0; i < kept; ++i) {
    const Stretch& one = stretches[i];
    if (one.begin == one.end) continue;
    const bool first = one.begin == word.begin;
    out.push_back({one.begin, one.end, word.at_start && first, word.continues && first});
  }
}

}  // namespace coppice::tokenization
