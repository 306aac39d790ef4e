#include "base/nearest.h"

#include <algorithm>

namespace coppice {
namespace {

std::size_t distance(std::string_view a, std::string_view b) {
  // Rows of the table for a's first i - 2, i - 1 and i letters.
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& words,
                    std::size_t limit) {
  constexpr std::size_t longest = 64;  // nobody mistypes that much
  if (typed.empty() || typed.size() > longest) return "";
  std::string best;
  std::size_t least = longest;
  for (const std::string& word : words) {
    const std::size_t most = std::min(limit, word.size() < 6 ? 1 : word.size() / 3);
    if (typed.size() > word.size() + most || word.size() > typed.size() + most) continue;
    const std::size_t changes = distance(typed, word);
    if (changes > most || changes >= word.size()) continue;
    if (changes < least) {
      least = changes;
      best = word;
    }
  }
  return best;
}

}  // namespace coppice
