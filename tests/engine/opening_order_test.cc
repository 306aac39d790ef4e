// In which order the requests of a call begin.
#include "engine/opening_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace coppice::testing {
namespace {

constexpr std::size_t block = 16;  // fewer tokens are not worth a change

std::vector<TokenId> prompt_of(const std::string& blocks) {
  std::vector<TokenId> tokens;
  for (const char c : blocks) tokens.insert(tokens.end(), block, c - 'a');
  return tokens;
}

std::vector<Request> requests_of(const std::vector<std::string>& prompts) {
  std::vector<Request> requests(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) requests[i].tokens = prompt_of(prompts[i]);
  return requests;
}

// Whoever shares most with the one before, the first of these.
std::vector<std::size_t> greedy_order(const std::vector<std::string>& prompts) {
  std::vector<std::size_t> left(prompts.size()), order;
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::string last;
  while (!left.empty()) {
    const auto shared = [&](std::size_t i) {
      const std::string& p = prompts[i];
      const auto most = static_cast<std::ptrdiff_t>(std::min(p.size(), last.size()));
      return std::mismatch(p.begin(), p.begin() + most, last.begin()).first - p.begin();
    };
    const auto best = std::max_element(left.begin(), left.end(), [&](std::size_t a, std::size_t b) {
      return shared(a) < shared(b);
    });
    order.push_back(*best);
    last = prompts[*best];
    left.erase(best);
  }
  return order;
}

TEST(OpeningOrder, IsDepthFirst) {
  std::mt19937 random(1);
  int moved = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::string> prompts(1 + random() % 12);
    for (std::string& prompt : prompts) {
      for (auto blocks = 1 + random() % 4; blocks > 0; --blocks) {
        prompt += static_cast<char>('a' + random() % 3);
      }
    }
    const std::vector<std::size_t> order = opening_order(requests_of(prompts));
    EXPECT_EQ(order, greedy_order(prompts));
    moved += std::is_sorted(order.begin(), order.end()) ? 0 : 1;
  }
  EXPECT_GT(moved, 300);
}

TEST(OpeningOrder, StaysWhereLittleIsShared) {
  std::vector<Request> requests(6);
  const std::string page(64, 'p');
  requests[0].prompt = page + "z";
  requests[1].prompt = "another text";
  requests[2].prompt = page + "a";
  requests[3].tokens = {7, 7, 7, 9};
  requests[4].prompt = "another word";
  requests[5].tokens = {7, 7, 7, 1};
  EXPECT_EQ(opening_order(requests), (std::vector<std::size_t>{0, 2, 1, 3, 4, 5}));
  EXPECT_TRUE(opening_order({}).empty());
}

}  // namespace
}  // namespace coppice::testing
