#include "reference/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace coppice::testing {
namespace {

TEST(Statistics, ChiSquareTailMatchesTables) {
  // Upper quantiles as printed in statistical tables.
  EXPECT_NEAR(chi_square_tail(3.841459, 1), 0.05, 1e-7);
  EXPECT_NEAR(chi_square_tail(23.20925, 10), 0.01, 1e-7);
  EXPECT_NEAR(chi_square_tail(149.4493, 100), 0.001, 1e-6);
  EXPECT_NEAR(chi_square_tail(2.0, 2), std::exp(-1.0), 1e-14);
  EXPECT_NEAR(chi_square_tail(60.0, 2) / std::exp(-30.0), 1.0, 1e-10);
}

TEST(Statistics, ImpossibleOutcomesAndShiftsAreRejected) {
  const std::vector<double> law{0.5, 0.5, 0.0};
  EXPECT_TRUE(compare(std::vector<std::int64_t>{5010, 4990, 0}, law).fits);
  EXPECT_FALSE(compare(std::vector<std::int64_t>{5000, 4999, 1}, law).fits);
  EXPECT_FALSE(compare(std::vector<std::int64_t>{5400, 4600, 0}, law).fits);
}

}  // namespace
}  // namespace coppice::testing
