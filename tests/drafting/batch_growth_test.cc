#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/grow.h"
#include "drafting/growth_economics.h"
#include "drafting/policy.h"
#include "drafting/proposer.h"
#include "reference/table_draft.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TokenPath;

// A child with u below 0.5 is accepted, one above is not.
AcceptanceCalibration heeding_numbers() {
  AcceptanceCalibration calibration(AcceptanceRule::rejection);
  for (int i = 0; i < 400; ++i) {
    const double u = i % 2 == 0 ? 0.25 : 0.75;
    calibration.observe(i / 2 % 2, 1 + i % 5, 0.5, u < 0.5, u);
  }
  calibration.update();
  return calibration;
}

// Nodes in pairs, passes cheap.
class PairPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.0; }
  double pass_cost(std::int32_t rows, std::int32_t) const override { return 0.015 + 0.005 * rows; }
  double verify_cost(std::int32_t size) const override { return 0.2 * ((size + 1) / 2); }
};

std::vector<float> even(const TokenPath&) { return std::vector<float>(4, 0.25f); }

// Hopeful tokens are worth a pass and further rows; a hopeless one ends its path, and the row that
// is free is filled beside it.
TEST(BatchGrowth, FollowsWhatItsTokensSay) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  int hopeful = 0, hopeless = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    TableDraft draft(even, 4, {1, 2, step, 4});
    TokenTree tree;
    tree.reset(3);
    GrowthLimits limits;
    limits.max_size = 12;
    grow_tree(*policy, draft, limits, tree);
    tree.validate(4);
    ASSERT_FALSE(draft.broken);
    ASSERT_EQ(draft.draws, tree.size()) << "drawn and dropped";
    ASSERT_EQ(tree.size() % 2, 0) << "the second row of a pair is free";
    if (tree.uniform[1] < 0.3f) {
      ++hopeful;
      EXPECT_GE(tree.height(), 2);
    } else if (tree.uniform[1] > 0.8f) {
      ++hopeless;
      EXPECT_EQ(tree.parent[2], 0) << "its sibling is worth more than its child";
    }
  }
  EXPECT_GT(hopeful, 80);
  EXPECT_GT(hopeless, 50);
}

// A sibling waits until passes have shown that its row is not better spent.
TEST(BatchGrowth, DrawsSiblingsLate) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  int late = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    TableDraft draft(even, 4, {1, 3, step, 4});
    TokenTree tree;
    tree.reset(3);
    GrowthLimits limits;
    limits.max_size = 12;
    grow_tree(*policy, draft, limits, tree);
    for (std::size_t node = 2; node < tree.token.size(); ++node) {
      late += tree.depth[node] < tree.depth[node - 1];
    }
  }
  EXPECT_GT(late, 20);
}

// Proposes one token under the root, sure of it, until the draft has said what it believes.
class Stubborn final : public Proposer {
 public:
  static constexpr TokenId token = 1;
  explicit Stubborn(bool listens) : listens_(listens) {}
  void begin() override {}
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but) override {
    if (node > 0 || but == token || candidates.child_with(0, token) >= 0) return std::nullopt;
    return Proposal{token, 0.9, 0.0};
  }
  double chance_beside(std::int32_t, TokenId, double chance, double belief) override {
    return listens_ ? belief : chance;
  }

 private:
  bool listens_;
};

// A proposed child is worth less once the draft has been asked and thinks little of it, and all
// below it with it: growth goes where the draft believes.
TEST(BatchGrowth, ListensToTheDraftAboutProposals) {
  const auto sure_of_another = [](const TokenPath&) {
    return std::vector<float>{0.01f, 0.01f, 0.97f, 0.01f};
  };
  for (const AcceptanceRule rule : {AcceptanceRule::rejection, AcceptanceRule::greedy}) {
    const AcceptanceCalibration calibration(rule);
    const PairPrices prices;
    for (const bool listens : {false, true}) {
      const auto policy =
          make_dyspec_policy({&calibration, &prices, rule == AcceptanceRule::greedy});
      Stubborn proposer(listens);
      std::int32_t below = 0, beside = 0;
      for (std::uint64_t step = 0; step < 50; ++step) {
        TableDraft draft(sure_of_another, 4, {1, 5, step, 4}, rule);
        TokenTree tree;
        tree.reset(3);
        GrowthLimits limits;
        limits.max_size = 12;
        limits.proposer = &proposer;
        grow_tree(*policy, draft, limits, tree);
        tree.validate(4);
        ASSERT_FALSE(draft.broken);
        std::vector<char> under(tree.token.size(), 0);
        for (std::size_t node = 1; node < tree.token.size(); ++node) {
          const auto parent = static_cast<std::size_t>(tree.parent[node]);
          under[node] = under[parent] != 0 || (parent == 0 && tree.token[node] == Stubborn::token);
          ++(under[node] != 0 ? below : beside);
        }
      }
      if (listens) {
        EXPECT_GT(beside, 2 * below) << static_cast<int>(rule);
      } else {
        EXPECT_GT(below, 2 * beside) << static_cast<int>(rule);
      }
    }
  }
}

// The same noise gives the same tree, whatever was grown before.
TEST(BatchGrowth, TreesDoNotDependOnEarlierOnes) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  const auto grown = [&](DraftPolicy& by, std::uint64_t step) {
    TableDraft draft(even, 4, {1, 4, step, 4});
    TokenTree tree;
    tree.reset(3);
    GrowthLimits limits;
    limits.max_size = 12;
    grow_tree(by, draft, limits, tree);
    return tree;
  };
  for (std::uint64_t step = 0; step < 50; ++step) {
    const TokenTree after_others = grown(*policy, step);
    const TokenTree first = grown(*make_dyspec_policy({&calibration, &prices}), step);
    EXPECT_EQ(after_others.token, first.token);
    EXPECT_EQ(after_others.parent, first.parent);
  }
}

TEST(BatchGrowth, KeepsItsLimits) {
  const AcceptanceCalibration calibration = heeding_numbers();
  class Free final : public GrowthEconomics {
   public:
    double least_node_cost(std::int32_t) const override { return 0.0; }
    double pass_cost(std::int32_t, std::int32_t) const override { return 0.0; }
    double verify_cost(std::int32_t) const override { return 0.0; }
  } prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  for (const std::int32_t size : {0, 1, 7, 12}) {
    for (const std::int32_t depth : {1, 3, 100}) {
      TableDraft draft(even, 4, {1, 5, 6, 7});
      TokenTree tree;
      tree.reset(3);
      GrowthLimits limits;
      limits.max_size = size;
      limits.max_depth = depth;
      grow_tree(*policy, draft, limits, tree);
      tree.validate(4);
      EXPECT_LE(tree.size(), size);
      EXPECT_LE(tree.height(), depth);
      EXPECT_EQ(tree.size(), depth == 1 ? std::min(size, 4) : size);
    }
  }
  // A draft that excludes all but one token has one path.
  TableDraft narrow(
      [](const TokenPath&) {
        return std::vector<float>{0, 0, 1, 0};
      },
      4, {1, 5, 6, 7});
  TokenTree tree;
  tree.reset(3);
  GrowthLimits limits;
  limits.max_size = 5;
  grow_tree(*policy, narrow, limits, tree);
  EXPECT_EQ(tree.height(), tree.size());
}

}  // namespace
}  // namespace coppice
