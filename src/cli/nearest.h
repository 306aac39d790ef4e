// What a mistyped word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::cli {

/// The one of `words` that takes the fewest changed, added, left out or swapped letters to become
/// `typed` (Damerau-Levenshtein, restricted); "" if the nearest is no nearer than a third of its
/// letters (of two one).
std::string nearest(std::string_view typed, const std::vector<std::string>& words);

}  // namespace coppice::cli
