#include "drafting/suffix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace coppice {
namespace {

using Tokens = std::vector<TokenId>;

// Places behind occurrences of `part` in `text`, of those that end before `end`.
std::vector<std::size_t> behind(const Tokens& text, std::span<const TokenId> part,
                                std::size_t end) {
  std::vector<std::size_t> places;
  for (std::size_t at = part.size(); at < end; ++at) {
    if (std::equal(part.begin(), part.end(),
                   text.begin() + static_cast<std::ptrdiff_t>(at - part.size()))) {
      places.push_back(at);
    }
  }
  return places;
}

Tokens random_text(std::mt19937& random, std::size_t length, TokenId vocab) {
  Tokens text;
  while (text.size() < length) {
    if (text.size() > 8 && random() % 8 == 0) {  // a copy
      const std::size_t from = random() % (text.size() - 6);
      for (std::size_t i = 0; i < 6 && text.size() < length; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocab)));
    }
  }
  return text;
}

TEST(SuffixIndex, FindsTheLongestSuffixThatOccurredBefore) {
  std::mt19937 random(1);
  for (const TokenId vocab : {1, 2, 3, 10}) {
    const Tokens text = random_text(random, 120, vocab);
    SuffixIndex index;
    for (std::size_t n = 0; n < text.size(); ++n) {
      index.append(text[n]);
      const std::size_t length = n + 1;
      std::size_t longest = length - 1;
      while (longest > 0 &&
             behind(text, std::span(text).subspan(length - longest, longest), length).empty()) {
        --longest;
      }
      ASSERT_EQ(index.end().length, static_cast<std::int32_t>(longest)) << vocab << " " << n;
    }
  }
}

TEST(SuffixIndex, FollowsTokensThatItDoesNotHold) {
  std::mt19937 random(2);
  for (const TokenId vocab : {2, 3, 6}) {
    const Tokens text = random_text(random, 80, vocab), other = random_text(random, 200, vocab + 1);
    SuffixIndex index;
    for (const TokenId token : text) index.append(token);
    SuffixIndex::Match match;
    for (std::size_t n = 0; n < other.size(); ++n) {
      match = index.then(match, other[n]);
      std::size_t longest = std::min(n + 1, text.size());
      while (longest > 0 &&
             behind(text, std::span(other).subspan(n + 1 - longest, longest), text.size() + 1)
                 .empty()) {
        --longest;
      }
      ASSERT_EQ(match.length, static_cast<std::int32_t>(longest)) << vocab << " " << n;
    }
  }
}

// Followers are counted for as many suffixes as random texts have, so exactly.
TEST(SuffixIndex, CountsWhatFollowed) {
  std::mt19937 random(3);
  int compared = 0;
  for (const TokenId vocab : {2, 3, 4}) {
    const Tokens text = random_text(random, 150, vocab);
    SuffixIndex index;
    for (std::size_t n = 0; n < text.size(); ++n) {
      index.append(text[n]);
      const SuffixIndex::Match end = index.end();
      if (end.length == 0) continue;
      std::map<TokenId, std::int32_t> counts;
      std::map<TokenId, std::int32_t> last;
      const auto part = std::span(text).subspan(n + 1 - static_cast<std::size_t>(end.length),
                                                static_cast<std::size_t>(end.length));
      for (const std::size_t at : behind(text, part, n + 1)) {
        ++counts[text[at]];
        last[text[at]] = static_cast<std::int32_t>(at);
      }
      const auto found = index.after(end);
      ASSERT_EQ(found.size(), counts.size()) << vocab << " " << n;
      for (std::size_t f = 0; f < found.size(); ++f) {
        ASSERT_EQ(found[f].count, counts[found[f].token]);
        ASSERT_EQ(found[f].last, last[found[f].token]);
        ASSERT_TRUE(f == 0 || found[f - 1].count >= found[f].count);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(SuffixIndex, NothingIsFoundAcrossASeparator) {
  SuffixIndex index;
  for (const TokenId token : {1, 2, 3, -1, 4, 1, 2, 5, -1, 2, 3}) index.append(token);
  SuffixIndex::Match match;
  for (const TokenId token : {1, 2}) match = index.then(match, token);
  ASSERT_EQ(match.length, 2);
  const auto followers = index.after(match);
  ASSERT_EQ(followers.size(), 2u);
  EXPECT_EQ(followers[0].token, 5);  // equally often, but later
  EXPECT_EQ(followers[1].token, 3);
  EXPECT_EQ(index.then(match, 4).length, 1);
}

TEST(SuffixIndex, ForgetsTheOlderHalf) {
  SuffixIndex index(100);
  for (int n = 0; n < 1000; ++n) {
    index.append(n);
    ASSERT_LE(index.size(), 100);
  }
  EXPECT_EQ(index.then({}, 999).length, 1);
  EXPECT_EQ(index.then({}, 899).length, 0);
}

}  // namespace
}  // namespace coppice
