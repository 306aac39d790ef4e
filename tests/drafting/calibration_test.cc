#include "drafting/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "drafting/growth_economics.h"
#include "drafting/policy.h"
#include "drafting/positions.h"
#include "reference/table_draft.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TokenPath;

constexpr std::int32_t all_ranks[] = {0, 1, 2, 3, 9};
constexpr std::int32_t all_depths[] = {1, 2, 3, 4, 20};

// One that has seen acceptance of no particular kind.
AcceptanceCalibration trained(std::uint64_t seed, int observations) {
  AcceptanceCalibration calibration;
  std::mt19937_64 random(seed);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < observations; ++i) {
    const double share = random() % 9 == 0 ? static_cast<double>(random() % 2) : unit();
    const auto rank = static_cast<std::int32_t>(random() % 5);
    const auto depth = static_cast<std::int32_t>(1 + random() % 6);
    calibration.observe(rank, depth, share, random() % (2 + seed % 5) == 0);
  }
  calibration.update();
  return calibration;
}

// What is usual is where learning starts, for every way of drawing; it weighs little.
TEST(Calibration, StartsFromWhatIsUsual) {
  for (const AcceptanceRule draw :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    AcceptanceCalibration calibration(draw);
    for (const std::int32_t depth : all_depths) {
      EXPECT_GT(calibration.position(0, depth), 2.0 * calibration.position(3, depth));
    }
    EXPECT_GT(calibration.child(0, 1.0), 0.8);
    const double before = calibration.position(0, 1);
    for (int i = 0; i < 100; ++i) calibration.observe(0, 1, 0.5, false);
    calibration.update();
    EXPECT_LT(calibration.position(0, 1), 0.1 * before);
    EXPECT_LT(calibration.child(0, 0.5), 0.15);
  }
}

// Else a threshold above what was learned would grow empty trees, which teach nothing, for good.
TEST(Calibration, RefusalsLeaveTheRootItsFirstChild) {
  AcceptanceCalibration calibration;
  for (int i = 0; i < 100; ++i) calibration.observe(0, 1, 0.6, false);
  calibration.update();
  EXPECT_LT(calibration.position(0, 1), 0.3);
  const auto policy = make_dyspec_policy({&calibration});
  TableDraft draft([](const TokenPath&) { return std::vector<float>(4, 0.25f); }, 4, {1, 2, 3, 4});
  TokenTree tree;
  tree.reset(3);
  grow_tree(*policy, draft, {9, 9, 0.9}, tree);
  ASSERT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.value[1], 1.0);
}

// Acceptance by rank and depth. Bound: four standard errors of 2000 observations, and priors of
// weight 4.
TEST(Calibration, FindsPositionsChances) {
  const auto law = [](std::int32_t rank, std::int32_t depth) {
    return (rank == 0 ? 0.6 : 0.3 / rank) + (depth <= 1 ? 0.2 : (depth <= 3 ? 0.1 : 0.0));
  };
  AcceptanceCalibration calibration;
  std::mt19937_64 random(7);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (const std::int32_t rank : {0, 1, 2, 3}) {
    for (const std::int32_t depth : {1, 3, 5}) {
      for (int i = 0; i < 2000; ++i) {
        calibration.observe(rank, depth, unit(), unit() < law(rank, depth));
      }
    }
  }
  calibration.update();
  for (const std::int32_t rank : {0, 1, 2, 3}) {
    for (const std::int32_t depth : {1, 2, 3, 4, 50}) {
      EXPECT_NEAR(calibration.position(rank, depth), law(rank, depth), 0.045);
    }
  }
}

// A few observations of one depth speak for others that have none.
TEST(Calibration, WiderClassesTeachNarrowerOnes) {
  AcceptanceCalibration calibration;
  for (int i = 0; i < 50; ++i) calibration.observe(1, 1, 0.2, true);
  calibration.update();
  EXPECT_GT(calibration.position(1, 1), 0.9);
  EXPECT_GT(calibration.position(1, 9), 0.9);
  EXPECT_EQ(calibration.position(0, 9), AcceptanceCalibration().position(0, 9));
}

// It learns from what a step judged, with the numbers that judged it.
TEST(Calibration, LearnsFromNumbers) {
  AcceptanceCalibration calibration(AcceptanceRule::rejection);
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 1, 0, 0.4f, 1.0, -1.0f, 0.3f);
  const double before = calibration.child(0, 0.4, 0.3);
  for (int step = 0; step < 200; ++step) calibration.record(tree, {});
  EXPECT_LT(calibration.child(0, 0.4, 0.3), 0.5 * before);
  EXPECT_LT(calibration.child(0, 0.4, 0.9), calibration.child(0, 0.4, 0.3));
}

// A proposed child says nothing of those that are drawn, nor do those that are drawn behind it,
// once it is refused: they are what the draft would mostly have drawn second.
TEST(Calibration, LearnsNothingBehindAProposedChild) {
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 10, 0, 0.5f, 1.0);
  tree.add_certain(0, 11, 1, 0.4, 0.8f);
  tree.add(0, 12, 2, 0.125f, 0.25);
  tree.add_certain(2, 13, 0, 0.4, 0.8f);
  tree.add(2, 14, 1, 0.25f, 0.1);
  AcceptanceCalibration recorded, expected;
  recorded.record(tree, std::vector<std::int32_t>{2});
  expected.observe(0, 1, 0.5, false);
  expected.update();
  for (const std::int32_t rank : all_ranks) {
    for (const std::int32_t depth : all_depths) {
      EXPECT_EQ(recorded.position(rank, depth), expected.position(rank, depth));
    }
    EXPECT_EQ(recorded.child(rank, 0.3), expected.child(rank, 0.3));
  }
}

TEST(Calibration, RecordsWhatWasJudged) {
  // The second of the root's children 1, 2, 3 was accepted; of its children 4, 5 none. Node 6,
  // under node 1, was not reached.
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 10, 0, 0.5f, 1.0);
  tree.add(0, 11, 1, 0.25f, 0.5);
  tree.add(0, 12, 2, 0.125f, 0.25);
  tree.add(2, 13, 0, 0.75f, 0.25);
  tree.add(2, 14, 1, 0.25f, 0.1);
  tree.add(1, 15, 0, 1.0f, 0.5);
  AcceptanceCalibration recorded, expected;
  recorded.record(tree, std::vector<std::int32_t>{2});
  expected.observe(0, 1, 0.5, false);
  expected.observe(1, 1, 0.5, true);
  expected.observe(0, 2, 0.75, false);
  expected.observe(1, 2, 1.0, false);
  expected.update();
  const AcceptanceCalibration nothing;
  double difference = 0.0;
  for (const std::int32_t rank : all_ranks) {
    for (const std::int32_t depth : all_depths) {
      EXPECT_EQ(recorded.position(rank, depth), expected.position(rank, depth));
    }
    for (int i = 0; i <= 100; ++i) {
      const double share = i / 100.0;
      EXPECT_EQ(recorded.child(rank, share), expected.child(rank, share));
      difference =
          std::max(difference, std::abs(recorded.child(rank, share) - nothing.child(rank, share)));
    }
  }
  EXPECT_GT(difference, 0.1);
}

// Best first, one node at a time, each value anew from the tokens that lead to its position.
class NaiveGrowth {
 public:
  NaiveGrowth(TableDraft& source, const AcceptanceCalibration& calibration, bool looks_ahead)
      : source_(source), calibration_(calibration), looks_ahead_(looks_ahead) {}

  TokenTree grow(const GrowthLimits& limits) {
    tree_.reset(0);
    estimate_ = {1.0};
    children_ = {{}};
    waiting_.resize(1);
    while (tree_.size() < limits.max_size) {
      Position best;
      for (std::int32_t node = 0; node < tree_.nodes(); ++node) {
        const Position position = next(node, limits);
        if (position.parent >= 0 && (best.parent < 0 || before(tree_, position, best))) {
          best = position;
        }
      }
      if (best.parent < 0) break;
      const auto parent = static_cast<std::size_t>(best.parent);
      const DrawnChild drawn = **waiting_[parent];
      waiting_[parent].reset();
      estimate_.push_back(estimate(best.parent, drawn));
      children_[parent].push_back(tree_.add(best.parent, drawn.token, best.rank, drawn.prob,
                                            best.value, drawn.belief, drawn.uniform));
      children_.emplace_back();
      waiting_.emplace_back();
    }
    return tree_;
  }

 private:
  double left(std::int32_t node) const {
    double left = 1.0;
    for (const std::int32_t child : children_[static_cast<std::size_t>(node)]) {
      left -= static_cast<double>(tree_.belief[static_cast<std::size_t>(child)]);
    }
    return left;
  }
  double refused(std::int32_t node) const {
    double chance = 1.0, left = 1.0;
    for (const std::int32_t child : children_[static_cast<std::size_t>(node)]) {
      const auto c = static_cast<std::size_t>(child);
      const auto mass = static_cast<double>(tree_.belief[c]);
      chance *= 1.0 - calibration_.child(tree_.rank[c], left > mass ? mass / left : 1.0,
                                         static_cast<double>(tree_.uniform[c]));
      left -= mass;
    }
    return chance;
  }
  double estimate(std::int32_t parent, const DrawnChild& drawn) const {
    const auto p = static_cast<std::size_t>(parent);
    const auto mass = static_cast<double>(drawn.belief < 0.0f ? drawn.prob : drawn.belief);
    const double share = left(parent) > mass ? mass / left(parent) : 1.0;
    return estimate_[p] * refused(parent) *
           calibration_.child(static_cast<std::int32_t>(children_[p].size()), share,
                              static_cast<double>(drawn.uniform));
  }

  // The next position under a node; parent -1: none.
  Position next(std::int32_t node, const GrowthLimits& limits) {
    const auto n = static_cast<std::size_t>(node);
    const auto rank = static_cast<std::int32_t>(children_[n].size());
    const std::int32_t depth = tree_.depth[n] + 1;
    if (depth > limits.max_depth) return {};
    if (rank == 0 && !source_.evaluated.contains(node))
      source_.evaluate(tree_, std::span(&node, 1));
    // A share of what was left before the child was drawn.
    if (!waiting_[n]) {
      share_.resize(std::max(share_.size(), n + 1));
      share_[n] = source_.expected_share(node);
      waiting_[n] = source_.child(tree_, node, rank);
    }
    if (!*waiting_[n]) return {};
    double value =
        rank == 0 ? tree_.value[n] : tree_.value[static_cast<std::size_t>(children_[n].back())];
    if (looks_ahead_) {
      value = std::min({value, estimate_[n] * refused(node), estimate(node, **waiting_[n])});
    } else if (node != 0 || rank != 0) {  // the root's first child is worth 1, to be drawn at all
      value = std::min(value, estimate_[n] * refused(node) * calibration_.child(rank, share_[n]));
    }
    if (!(value > 0.0) || value < limits.min_value) return {};
    return {value, depth, node, rank};
  }

  TableDraft& source_;
  const AcceptanceCalibration& calibration_;
  const bool looks_ahead_;
  TokenTree tree_;
  std::vector<double> estimate_;
  std::vector<double> share_;  // expected, of the next child
  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::optional<std::optional<DrawnChild>>> waiting_;  // the next child, once drawn
};

TEST(CalibratedDyspec, BatchedGrowthIsBestFirst) {
  std::int64_t trees = 0, nodes = 0, passes = 0, heights = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const AcceptanceCalibration calibration = trained(seed, static_cast<int>(seed % 7 * 40));
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 3, 5, 12}[seed % 5];
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    for (const AcceptanceRule draw :
         {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      const auto policy =
          make_dyspec_policy({&calibration, nullptr, draw != AcceptanceRule::rejection});
      for (const std::int32_t size : {0, 1, 2, 5, 11, 30}) {
        GrowthLimits limits;
        limits.max_size = size;
        if (seed % 3 == 1) limits.max_depth = 1 + static_cast<std::int32_t>(seed / 3 % 4);
        if (seed % 4 == 1) limits.min_value = 0.03;
        const StepKey key{seed, 1, 2, 9};
        TableDraft source(draft, vocab, key, draw), naive_source(draft, vocab, key, draw);
        TokenTree tree;
        tree.reset(0);
        grow_tree(*policy, source, limits, tree);
        tree.validate(static_cast<std::int32_t>(vocab));
        ASSERT_FALSE(source.broken);
        ASSERT_LE(source.most_live, static_cast<std::size_t>(size + 1));
        const TokenTree expected =
            NaiveGrowth(naive_source, calibration, draw != AcceptanceRule::rejection).grow(limits);
        // The same nodes; where values tie but for rounding, the last ones may differ.
        auto paths = testing::paths_of(tree), expected_paths = testing::paths_of(expected);
        std::sort(paths.begin(), paths.end());
        std::sort(expected_paths.begin(), expected_paths.end());
        ASSERT_EQ(paths.size(), expected_paths.size());
        if (paths != expected_paths) {
          const double least = *std::min_element(expected.value.begin(), expected.value.end());
          ASSERT_NEAR(*std::min_element(tree.value.begin(), tree.value.end()), least,
                      1e-12 * least);
        }
        for (std::size_t i = 1; i < tree.value.size(); ++i) {
          ASSERT_LE(tree.value[i], tree.value[i - 1]);
          ASSERT_NEAR(tree.value[i], expected.value[i], 1e-12);
        }
        // A pass per layer of the tree; one more may find nothing better.
        ASSERT_GE(source.passes, tree.height());
        ASSERT_LE(source.passes, tree.height() + 2);
        ++trees;
        nodes += tree.size();
        passes += source.passes;
        heights += tree.height();
      }
    }
  }
  std::cout << trees << " trees of " << nodes << " nodes and " << heights << " layers, " << passes
            << " draft passes\n";
}

// With costs: what a position must be worth rises with the tree, no pass is made that does not
// pay, and under rejection whatever was drawn stays; else children are looked at first.
TEST(BatchGrowth, StopsWhereNothingPays) {
  class Prices final : public GrowthEconomics {
   public:
    double least_node_cost(std::int32_t size) const override { return 0.02 + 0.004 * size; }
    double pass_cost(std::int32_t rows, std::int32_t) const override { return pass + 0.01 * rows; }
    double verify_cost(std::int32_t size) const override {
      return 0.02 * size + 0.002 * size * size;
    }
    double pass = 0.02;
  } prices;
  std::int64_t nodes = 0, looked_ahead = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const AcceptanceCalibration calibration = trained(seed, 100);
    const std::size_t vocab = 2 + seed % 9;
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    for (const AcceptanceRule draw :
         {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      const bool any_tree = draw != AcceptanceRule::rejection;
      const auto policy = make_dyspec_policy({&calibration, &prices, any_tree});
      GrowthLimits limits;
      limits.max_size = 60;
      TokenTree tree;
      std::int32_t passes = 0;
      for (const double pass : {0.02, 0.2, 50.0}) {
        prices.pass = pass;
        TableDraft source(draft, vocab, {seed, 1, 2, 3}, draw);
        tree.reset(0);
        grow_tree(*policy, source, limits, tree);
        tree.validate(static_cast<std::int32_t>(vocab));
        ASSERT_FALSE(source.broken);
        if (pass == 0.02) passes = source.passes;
        ASSERT_LE(source.passes, passes);
        if (pass == 50.0) {
          ASSERT_EQ(source.passes, 1) << "none pays for another pass";
        }
        if (any_tree) {
          ASSERT_GE(source.draws, tree.size());
          looked_ahead += source.draws - tree.size();
        } else {
          ASSERT_EQ(source.draws, tree.size()) << "drawn and dropped";
          nodes += tree.size();
        }
      }
    }
  }
  EXPECT_GT(nodes, 1000);
  EXPECT_GT(looked_ahead, 1000);
}

}  // namespace
}  // namespace coppice
