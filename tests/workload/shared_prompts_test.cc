// Sets of prompts with shared prefixes.
#include "workload/shared_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "reference/files.h"

namespace coppice::workload {
namespace {

std::int64_t prefixes(const std::vector<std::vector<TokenId>>& prompts) {
  std::set<std::vector<TokenId>> all;
  for (const auto& prompt : prompts) {
    for (std::size_t n = 1; n <= prompt.size(); ++n)
      all.insert({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n)});
  }
  return std::ssize(all);
}

TEST(SharedPrompts, DistinctTokensAreThePrefixes) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<TokenId>> prompts(1 + random() % 8);
    for (auto& prompt : prompts) {
      prompt.resize(random() % 6);
      for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 3);
    }
    EXPECT_EQ(distinct_tokens(prompts), prefixes(prompts));
  }
  EXPECT_EQ(distinct_tokens({}), 0);
}

TEST(SharedPrompts, HaveTheStatisticsAskedFor) {
  for (const SharingStatistics& set : {toolbench(), loogle()}) {
    const SharedPrompts made = shared_prompts(set, 6, 5, 32000, 1);
    ASSERT_EQ(made.prompts.size(), 30u);
    const double mean = static_cast<double>(made.prompt_tokens) / 30;
    EXPECT_NEAR(mean, static_cast<double>(set.mean_tokens), 0.01 * mean);
    // What a prompt shares with another one: the rest is its own.
    const double own = (1.0 - set.common - set.of_group) * 30;
    const double distinct = mean * (own + 6 * set.of_group + set.common);
    EXPECT_NEAR(static_cast<double>(made.distinct_tokens), distinct, 0.01 * distinct);
    std::size_t shortest = made.prompts[0].size(), longest = shortest;
    for (const auto& prompt : made.prompts) {
      shortest = std::min(shortest, prompt.size());
      longest = std::max(longest, prompt.size());
    }
    EXPECT_GT(static_cast<double>(longest), 1.3 * static_cast<double>(shortest));
  }
}

TEST(SharedPrompts, AreShuffledAndRepeatByTheirSeed) {
  const SharingStatistics set = {200, 0.1, 0.7};
  const SharedPrompts made = shared_prompts(set, 4, 8, 1000, 1);
  EXPECT_EQ(made.prompts, shared_prompts(set, 4, 8, 1000, 1).prompts);
  EXPECT_NE(made.prompts, shared_prompts(set, 4, 8, 1000, 2).prompts);
  // Neighbours of one group, which share more than what all share.
  std::size_t together = 0;
  for (std::size_t i = 1; i < made.prompts.size(); ++i) {
    together += distinct_tokens({made.prompts[i - 1], made.prompts[i]}) <
                        std::ssize(made.prompts[i - 1]) + std::ssize(made.prompts[i]) - 40
                    ? 1
                    : 0;
  }
  EXPECT_LT(together, 20u);  // 28 if they were in order
  EXPECT_NE(testing::error_of(
                [] {
                  shared_prompts({4, 0.1, 0.7}, 1, 1, 10, 1);
                },
                ErrorKind::usage),
            "");
  EXPECT_NE(testing::error_of([] { shared_prompts(loogle(), 10000, 10, 10, 1); }, ErrorKind::usage),
            "");
}

}  // namespace
}  // namespace coppice::workload
