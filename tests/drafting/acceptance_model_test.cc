#include "drafting/acceptance_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace coppice {
namespace {

constexpr AcceptanceModel::Start start = {{{0.9, 0.3, 0.7}, {-0.4, 0.2, 0.1}, {-1.0, 0.2, 0.0}}};

// A chance rises with the child's share, but never with the number that judges it.
void expect_monotone(const AcceptanceModel& model) {
  for (const std::int32_t rank : {0, 1, 2, 9}) {
    for (double u = 0.5 / 64; u < 1.0; u += 1.0 / 64) {
      double last = 0.0;
      for (int i = 0; i <= 100; ++i) {
        const double chance = model.chance(rank, i / 100.0, u);
        ASSERT_GE(chance, last);
        ASSERT_GT(chance, 0.0);
        ASSERT_LT(chance, 1.0);
        if (u > 1.0 / 64) {
          ASSERT_LE(chance, model.chance(rank, i / 100.0, u - 1.0 / 64));
        }
        last = chance;
      }
    }
  }
}

TEST(AcceptanceModel, StartsWhereItIsTold) {
  const AcceptanceModel model(start);
  expect_monotone(model);
  EXPECT_NEAR(model.chance(0, 0.5), 1.0 / (1.0 + std::exp(-0.9)), 1e-12);
  EXPECT_NEAR(model.chance(1, 0.5, 0.25),
              1.0 / (1.0 + std::exp(0.4 - 0.1 * (std::log(4.0) - 0.25))), 1e-12);
  EXPECT_GT(model.chance(0, 0.5, 0.05), model.chance(0, 0.5, 0.95) + 0.2);
  EXPECT_EQ(model.chance(2, 0.3), model.chance(7, 0.3));
}

// Children accepted by another law of the same form. Bound: about four standard errors of 10,000
// observations of a class, at the corners.
TEST(AcceptanceModel, FindsTheLaw) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  const auto law = [](int rank, double share, double u) {
    const double z = 0.5 - 0.8 * rank + 0.9 * std::log(share / (1.0 - share)) -
                     (0.2 + 0.2 * rank) * (u + std::log(u));
    return 1.0 / (1.0 + std::exp(-z));
  };
  AcceptanceModel learned(start);
  const AcceptanceModel untaught(start);
  for (int i = 0; i < 30000; ++i) {
    const int rank = i % 3;
    const double share = 0.01 + 0.98 * unit(random), u = (0.5 + std::floor(64 * unit(random))) / 64;
    learned.observe(rank, share, unit(random) < law(rank, share, u), u);
  }
  double off_at_start = 0.0;
  for (const int rank : {0, 1, 2}) {
    for (const double share : {0.05, 0.3, 0.7, 0.95}) {
      for (const double u : {0.05, 0.3, 0.6, 0.95}) {
        EXPECT_NEAR(learned.chance(rank, share, u), law(rank, share, u), 0.05)
            << rank << " " << share << " " << u;
        off_at_start =
            std::max(off_at_start, std::abs(untaught.chance(rank, share, u) - law(rank, share, u)));
      }
    }
  }
  EXPECT_GT(off_at_start, 0.3);
}

// A draft that is right half as often is known for that within one text.
TEST(AcceptanceModel, LearnsAPairsLevelFast) {
  AcceptanceModel model(start);
  const double before = model.chance(0, 0.5, 0.5);
  for (int i = 0; i < 40; ++i) model.observe(0, 0.5, i % 5 < 2, 0.5);
  EXPECT_GT(before, 0.7);
  EXPECT_NEAR(model.chance(0, 0.5, 0.5), 0.4, 0.1);
  EXPECT_NEAR(model.chance(1, 0.5, 0.5), AcceptanceModel(start).chance(1, 0.5, 0.5), 1e-12);
}

// Whatever it has seen, a chance stays one, and monotone.
TEST(AcceptanceModel, BearsContradictions) {
  AcceptanceModel model(start);
  for (int i = 0; i < 3000; ++i) {
    model.observe(i % 4, i % 5 == 0 ? 1.0 : 0.0, i % 2 == 0, i % 2 == 0 ? 0.992 : 0.008);
  }
  for (int i = 0; i < 300; ++i) model.observe(i % 4, 1.0, false, 0.008);
  expect_monotone(model);
}

}  // namespace
}  // namespace coppice
