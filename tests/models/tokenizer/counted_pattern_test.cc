// Patterns are counted: the same matches, and an end to what looks far at every place.
#include <gtest/gtest.h>
// POSIX's header, which GoogleTest includes, has these names, too.
#define ONIG_ESCAPE_REGEX_T_COLLISION
#define re_registers onig_registers
#include <oniguruma.h>
#undef re_registers

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/allowance.h"
#include "models/tokenizer/counted_pattern.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/regex.h"

namespace coppice::testing {
namespace {

using tokenization::Allowance;
using tokenization::counted_pattern;
using tokenization::Regex;
using Spans = std::vector<std::pair<int, int>>;

/// Every match of a pattern that begins in the text, whether they overlap or not, as Oniguruma
/// finds them; nothing if it refuses the pattern.
std::optional<Spans> found_by_oniguruma(const std::string& pattern, const std::string& text) {
  const auto* const begin = reinterpret_cast<const OnigUChar*>(pattern.data());
  const auto* const data = reinterpret_cast<const OnigUChar*>(text.data());
  OnigRegex regex = nullptr;
  if (onig_new(&regex, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
               ONIG_SYNTAX_DEFAULT, nullptr) != ONIG_NORMAL) {
    return std::nullopt;
  }
  Spans spans;
  OnigRegion* region = onig_region_new();
  for (std::size_t at = 0; at <= text.size();
       at += at < text.size()
                 ? static_cast<std::size_t>(std::max(1, utf8_sequence(text.substr(at))))
                 : std::size_t{1}) {
    onig_region_clear(region);
    const int found = onig_search(regex, data, data + text.size(), data + at, data + text.size(),
                                  region, ONIG_OPTION_NONE);
    spans.emplace_back(found < 0 ? found : region->beg[0], found < 0 ? found : region->end[0]);
  }
  onig_region_free(region, 1);
  onig_free(regex);
  return spans;
}

/// Patterns of all that coppice counts, nested.
class PatternWriter {
 public:
  explicit PatternWriter(std::uint32_t seed) : random_(seed) {}
  std::size_t below(std::size_t end) { return random_() % end; }

  std::string pattern(int depth = 3, bool behind = false) {
    std::string out;
    for (std::size_t branches = 1 + below(3); branches > 0; --branches) {
      for (std::size_t items = below(5); items > 0; --items) out += item(depth, behind);
      if (branches > 1) out += '|';
    }
    return out;
  }
  std::string text() {
    static const char* const parts[] = {"a", "a",  "b", "aab", " ",      "  ",     "\n", "1", "A",
                                        "x", "\"", "]", "-",   "\u00e9", "\u65e5", "{",  "ab"};
    std::string out;
    for (std::size_t count = below(14); count > 0; --count) out += parts[below(17)];
    return out;
  }

 private:
  std::string item(int depth, bool behind) {
    static const char* const repeats[] = {
        "*",     "+",    "?",    "*?",   "+?",  "??",     "*+",     "++", "?+", "{2}", "{1,3}",
        "{0,2}", "{1,}", "{,2}", "{2}?", "{6}", "{1,3}+", "{0,9}?", "?*", "{x", "{,}", "{"};
    std::string out = atom(depth, behind);
    if (below(2) == 0) out += behind ? "?" : repeats[below(22)];
    return out;
  }
  std::string atom(int depth, bool behind) {
    static const char* const plain[] = {
        "a",           "b",           "x",           " ",           ".",           "\u00e9",
        "\\s",         "\\S",         "\\d",         "\\w",         "\\p{L}",      "\\p{^N}",
        "\\P{Lu}",     "\\x61",       "\\x{e9}",     "\\u0061",     "\\o{141}",    "\\0141",
        "\\b",         "\\B",         "^",           "$",           "\\z",         "\\A",
        "\\O",         "\\h",         "\\K",         "\\n",         "]",           "}",
        "\\(",         "\\[",         "\\\\",        "(?i)",        "[ab]",        "[^a]",
        "[]a]",        "[^]a]",       "[a[bx]]",     "[a-x&&[^b]]", "[[:alpha:]]", "[[:^digit:]_]",
        "[\\]a]",      "[\\[\\p{L}]", "[\\p{N}a-b]", "[[]a]b]",     "[(|)]",       "[{*+]",
        "[\\x{61}\\s]"};
    static const char* const groups[] = {"(?:", "(",    "(?=",    "(?!",
                                         "(?>", "(?i:", "(?i-m:", "(?<n>"};
    if (depth == 0 || below(3) != 0) return plain[below(49)];
    const std::size_t kind = below(10);
    if (kind < 8) return groups[kind] + pattern(depth - 1, behind) + ")";
    return (kind == 8 ? "(?<=" : "(?<!") + pattern(depth - 1, true) + ")";
  }
  std::mt19937 random_;
};

TEST(CountedPattern, HasTheSameMatches) {
  PatternWriter writer(7);
  int tried = 0, changed = 0;
  const std::string where = "f";
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern = writer.pattern();
    const std::string text = writer.text();
    const auto expected = found_by_oniguruma(pattern, text);
    if (!expected) continue;
    const std::string counted = counted_pattern(pattern, where);
    const auto found = found_by_oniguruma(counted, text);
    ASSERT_TRUE(found) << pattern << " as " << counted;
    ASSERT_EQ(*found, *expected) << pattern << " as " << counted << " in '" << text << "'";
    ++tried;
    changed += counted != pattern;
  }
  EXPECT_GT(tried, 5'000);
  EXPECT_GT(changed, 2'000);
}

}  // namespace
}  // namespace coppice::testing
