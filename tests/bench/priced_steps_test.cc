#include "priced_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>
#include <vector>

namespace coppice::bench {
namespace {

using Steps = std::vector<std::vector<StepEnd>>;

// The best ratio over every choice of ends.
double best_of_all_choices(const Steps& steps) {
  double best = 0.0;
  const std::function<void(std::size_t, double, double)> choose =
      [&](std::size_t step, double tokens, double seconds) {
        if (step == steps.size()) {
          best = std::max(best, tokens / seconds);
          return;
        }
        for (const StepEnd& end : steps[step]) {
          choose(step + 1, tokens + end.tokens, seconds + end.seconds);
        }
      };
  choose(0, 0.0, 0.0);
  return best;
}

TEST(PricedSteps, BestRateIsThatOfTheBestChoice) {
  std::mt19937_64 random(5);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int trial = 0; trial < 200; ++trial) {
    Steps steps(1 + random() % 5);
    for (auto& ends : steps) {
      ends.push_back({1.0, 1.0});
      while (random() % 4 != 0) {
        ends.push_back({ends.back().tokens + 1.0, ends.back().seconds + 2.0 * unit()});
      }
    }
    const double expected = best_of_all_choices(steps);
    EXPECT_NEAR(best_rate(steps), expected, 1e-6 * expected);
  }
}

// By itself the first step would end with its node; beside a better one, time is worth more.
TEST(PricedSteps, BestRateWeighsStepsAgainstOneAnother) {
  EXPECT_DOUBLE_EQ(best_rate({{{1.0, 1.0}, {2.0, 3.0}}}), 1.0);
  EXPECT_DOUBLE_EQ(best_rate({{{1.0, 1.0}, {2.0, 1.5}}}), 2.0 / 1.5);
  EXPECT_DOUBLE_EQ(best_rate({{{1.0, 1.0}, {2.0, 1.5}}, {{1.0, 1.0}, {9.0, 3.0}}}), 10.0 / 4.0);
}

}  // namespace
}  // namespace coppice::bench
