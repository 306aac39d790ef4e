#include "drafting/ratio_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "drafting/calibration.h"

namespace coppice {
namespace {

// A chance rises with the child's share, but never with the number that judges it.
TEST(RatioModel, IsAChanceThatFallsWithTheNumber) {
  const RatioModel model;
  for (const std::int32_t rank : {0, 1, 2, 9}) {
    for (const double share : {0.0, 0.01, 0.3, 0.9, 1.0}) {
      double last = 1.0;
      for (double u = 0.5 / 64; u < 1.0; u += 1.0 / 64) {
        const double chance = model.chance(rank, share, u);
        ASSERT_GT(chance, 0.0);
        ASSERT_LE(chance, last);
        last = chance;
      }
    }
    EXPECT_GT(model.chance(rank, 0.9, 0.5), model.chance(rank, 0.05, 0.5));
  }
  EXPECT_GT(model.chance(0, 0.5, 0.1), 0.9);
  EXPECT_LT(model.chance(0, 0.1, 0.95), 0.6);
}

// Children whose log ratio is normal with other means and widths than at the start. The model
// ends within 0.1 of their chances (it counts the last 500 children or so), where the start was off
// by much more.
TEST(RatioModel, FindsTheLawOfRatios) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  const auto mean = [](int rank, double share) { return -0.3 - 0.7 * rank - 1.2 * (1.0 - share); };
  const auto width = [](double share) { return 0.4 + 0.8 * (1.0 - share); };
  RatioModel learned;
  const RatioModel start;
  for (int i = 0; i < 30000; ++i) {
    const int rank = i % 3;
    const double share = unit(random), u = unit(random);
    const double ratio = std::exp(mean(rank, share) + width(share) * normal(random));
    learned.observe(rank, share, u, u < ratio);
  }
  double off_at_start = 0.0;
  for (const int rank : {0, 1, 2}) {
    for (const double share : {0.1, 0.5, 0.9}) {
      for (const double u : {0.05, 0.3, 0.6, 0.95}) {
        const double z = (mean(rank, share) - std::log(u)) / width(share);
        const double chance = 0.5 * std::erfc(-z / std::sqrt(2.0));
        EXPECT_NEAR(learned.chance(rank, share, u), chance, 0.1)
            << rank << " " << share << " " << u;
        off_at_start = std::max(off_at_start, std::abs(start.chance(rank, share, u) - chance));
      }
    }
  }
  EXPECT_GT(off_at_start, 0.3);
}

// Whatever it has seen, a chance stays one.
TEST(RatioModel, BearsContradictions) {
  RatioModel model;
  for (int i = 0; i < 3000; ++i) {
    model.observe(i % 4, i % 5 == 0 ? 1.0 : 0.0, i % 2 == 0 ? 0.992 : 0.008, i % 2 == 0);
  }
  for (const std::int32_t rank : {0, 1, 2}) {
    for (const double share : {0.0, 0.5, 1.0}) {
      for (const double u : {0.008, 0.5, 0.992}) {
        const double chance = model.chance(rank, share, u);
        EXPECT_GT(chance, 0.0);
        EXPECT_LT(chance, 1.0);
      }
    }
  }
}

// A calibration learns from what a step judged, with the numbers that judged it.
TEST(Calibration, LearnsFromNumbers) {
  AcceptanceCalibration calibration(ChildDraw::sampled);
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 1, 0, 0.4f, 1.0, -1.0f, 0.3f);
  const double before = calibration.child(0, 1, 0.4, 0.3);
  for (int step = 0; step < 200; ++step) calibration.record(tree, {});
  EXPECT_LT(calibration.child(0, 1, 0.4, 0.3), 0.5 * before);
  EXPECT_LT(calibration.child(0, 1, 0.4, 0.9), calibration.child(0, 1, 0.4, 0.3));
}

}  // namespace
}  // namespace coppice
