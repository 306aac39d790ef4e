// What a mistyped word was probably meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

/// The one of `words` that takes the fewest changed, added, left out or swapped letters to become
/// `typed` (Damerau-Levenshtein, restricted); "" if the nearest is no nearer than a third of its
/// letters (of two one), or takes more than `limit` changes.
std::string nearest(std::string_view typed, const std::vector<std::string>& words,
                    std::size_t limit = 64);

}  // namespace coppice
