// What speculation writes has the target's law: computed, not sampled. Growth and judgement, as
// the product runs them, are followed through every outcome of their random decisions over
// vocabularies of 2 to 5 and trees of up to 5 nodes, and every text's probability is compared with
// the target's.
//
// The tolerance. T and D are multiples of 2^-24 and sum to 1 exactly (reference/exact_law.h), so
// that nothing but double arithmetic separates the two laws. A decision's parts are right to
// 2^-52 each; a path takes at most 30 decisions of at most 5 parts, and what all paths' errors add
// up to is at most what the worst path's decisions do: 150 2^-52 = 3e-14. The scalar residual adds
// a relative 2^-50 or so to each of its masses, a residual of at most 1e-12 is judged as none where
// it is reached with that probability. Together below 1e-13.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/growth_economics.h"
#include "drafting/sequoia.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "reference/exact_law.h"
#include "reference/quick.h"
#include "reference/table_proposer.h"
#include "verify/rejection-inl.h"

namespace coppice::losslessness_test {
namespace {

using testing::EnumeratedDecisions;
using testing::Enumeration;
using testing::ExactPair;
using testing::fixed;
using testing::LawError;

constexpr double tolerance = 1e-12;

// Prices under which trees of a few nodes pay, and none of more than five.
class FixedPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t size) const override { return 0.055 + 0.01 * size; }
  double pass_cost(std::int32_t rows, std::int32_t) const override { return 0.03 + 0.01 * rows; }
  double verify_cost(std::int32_t size) const override { return 0.05 * size + 0.005 * size * size; }
};

// Three rows cost as much as one, and passes are cheap: siblings are drawn late, in rows that the
// path beside them turned out not to be worth.
class BucketPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.0; }
  double pass_cost(std::int32_t rows, std::int32_t) const override { return 0.05 + 0.01 * rows; }
  double verify_cost(std::int32_t size) const override { return size > 3 ? 0.5 : 0.0; }
};

// Acceptance that rises with the share of the draft's mass and falls with rank, so that trees have
// breadth and depth.
const AcceptanceCalibration& learned() {
  static const AcceptanceCalibration calibration = [] {
    AcceptanceCalibration of(AcceptanceRule::rejection);
    std::mt19937_64 random(3);
    const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    for (int i = 0; i < 400; ++i) {
      const double share = unit();
      const auto rank = static_cast<std::int32_t>(random() % 4);
      const auto depth = static_cast<std::int32_t>(1 + random() % 5);
      of.observe(rank, depth, share, unit() < std::sqrt(share) * (rank == 0 ? 0.95 : 0.7));
    }
    of.update();
    return of;
  }();
  return calibration;
}

struct Grown {
  std::string name;
  std::unique_ptr<DraftPolicy> policy;
  testing::LimitsRule limits;
  /// How finely growth sees the numbers that will judge its children; 0: not at all.
  std::int32_t cells = 0;
};

std::vector<Grown> growths() {
  static const FixedPrices prices;
  static const BucketPrices in_buckets;
  static const AcceptanceCalibration nothing_learned;
  std::vector<Grown> all;
  const auto add = [&](std::string name, std::unique_ptr<DraftPolicy> policy,
                       testing::LimitsRule limits) {
    all.push_back({std::move(name), std::move(policy), std::move(limits)});
  };
  const auto add_seeing = [&](std::string name, const DyspecRule& rule,
                              testing::LimitsRule limits) {
    add(std::move(name), make_dyspec_policy(rule), std::move(limits));
    all.back().cells = 2;
  };
  for (const std::int32_t size : {0, 1, 2, 4}) {
    add("dyspec " + std::to_string(size), make_dyspec_policy(), fixed(size));
  }
  add("dyspec 4, depth 2", make_dyspec_policy(), fixed(4, 2));
  add("dyspec 5, value 0.2", make_dyspec_policy(), fixed(5, 9, 0.2));
  add("threshold 0.3", make_dyspec_policy(), fixed(5, 9, 0.3));
  add("threshold 0.05, 3 nodes", make_dyspec_policy(), fixed(3, 9, 0.05));
  add("calibrated", make_dyspec_policy({&learned()}), fixed(4));
  add("calibrated, nothing learned", make_dyspec_policy({&nothing_learned}), fixed(3));
  add("calibrated threshold", make_dyspec_policy({&learned()}), fixed(4, 9, 0.2));
  add("by costs", make_dyspec_policy({&learned(), &prices}), fixed(4));
  add("by costs in buckets", make_dyspec_policy({&learned(), &in_buckets}), fixed(4));
  add("by costs in buckets, depth 2", make_dyspec_policy({&learned(), &in_buckets}), fixed(4, 2));
  add_seeing("seeing", {&learned()}, fixed(3));
  add_seeing("seeing threshold", {&learned()}, fixed(3, 9, 0.15));
  add_seeing("seeing, by costs", {&learned(), &prices}, fixed(3));
  add_seeing("seeing, by costs in buckets", {&learned(), &in_buckets}, fixed(3));
  add("chain 1", make_chain_policy(), fixed(1));
  add("chain 4", make_chain_policy(), fixed(4));
  add("chain, by costs", make_chain_policy({&learned(), &prices}), fixed(4));
  add("chain, seeing, by costs", make_chain_policy({&learned(), &prices}), fixed(4));
  all.back().cells = 2;
  add("specinfer <2,1>", make_specinfer_policy({2, 1}), fixed(99));
  add("specinfer <1,3>, 4 nodes", make_specinfer_policy({1, 3}), fixed(4));
  // Three children where some drafts have fewer; a map whose first rank is not its best.
  const TreeShape shape(std::vector<RankPath>{{0}, {1}, {0, 0}, {1, 0}, {2}});
  add("static 5", make_static_policy(shape), fixed(5));
  add("static 5, 3 nodes", make_static_policy(shape), fixed(3));
  add("sequoia 4",
      make_sequoia_policy(plan_sequoia(std::vector<double>{0.25, 0.4, 0.2}, {4, 2, 3})), fixed(64));
  return all;
}

LawError rejection_error(ExactPair& pair, const Grown& grown, std::int32_t steps = 1,
                         testing::Learning* learning = nullptr) {
  Enumeration enumeration;
  const EnumeratedDecisions decide(enumeration);
  const auto vocab = static_cast<std::int64_t>(pair.target.vocab());
  NoiseCache noise(vocab);
  BasicChildDrawer<EnumeratedDecisions> drawer(vocab, noise, decide, grown.cells);
  RejectionVerifier<EnumeratedDecisions> rule(decide);
  return testing::law_error(
      enumeration, pair, drawer,
      {*grown.policy, rule, grown.limits, AcceptanceRule::rejection, steps, learning});
}

class Summary {
 public:
  void add(const std::string& name, const LawError& error, double allowed = tolerance) {
    ++laws_;
    paths_ += error.paths;
    EXPECT_LE(error.largest, allowed) << name << ": " << error.text();
    EXPECT_NEAR(error.total, 1.0, tolerance) << name;
    EXPECT_FALSE(error.address_shared) << name;
    EXPECT_LE(error.largest_tree, 5) << name;
    if (error.largest >= worst_.largest) {
      worst_ = error;
      worst_name_ = name;
    }
  }
  ~Summary() {
    std::cout << laws_ << " laws, " << paths_ << " paths; the worst, " << worst_name_ << ": "
              << worst_.text() << "\n";
  }

 private:
  int laws_ = 0;
  std::int64_t paths_ = 0;
  LawError worst_;
  std::string worst_name_ = "none";
};

TEST(Losslessness, RejectionForEveryPairAndPolicy) {
  Summary summary;
  auto pairs = testing::exact_pairs();
  const auto all = growths();
  double accepted = 0.0;
  for (ExactPair& pair : pairs) {
    for (const Grown& grown : all) {
      // They have most of all paths.
      if (testing::quick && grown.cells > 0 && pair.target.vocab() > 3) continue;
      const LawError error = rejection_error(pair, grown);
      summary.add(pair.name + ", " + grown.name, error);
      accepted = std::max(accepted, error.accepted_length);
    }
  }
  EXPECT_GT(accepted, 4.9);  // a chain of 4, always accepted
}

// Children that come from no distribution: before those that are drawn, between them, below nodes
// that no pass has evaluated, and alone.
TEST(Losslessness, ProposedChildren) {
  const FixedPrices prices;
  const BucketPrices in_buckets;
  Summary summary;
  auto pairs = testing::exact_pairs();
  double accepted = 0.0;
  std::int64_t proposed_beside_drawn = 0;
  for (ExactPair& pair : pairs) {
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      testing::TableProposer proposer(pair.target.vocab(), seed, seed);
      std::vector<Grown> all;
      const auto add = [&](std::string name, std::unique_ptr<DraftPolicy> policy,
                           testing::LimitsRule limits, bool drafts = true, std::int32_t cells = 0) {
        all.push_back({std::move(name), std::move(policy),
                       testing::proposing(std::move(limits), proposer, drafts), cells});
      };
      add("dyspec 4", make_dyspec_policy(), fixed(4));
      add("dyspec 5, value 0.2", make_dyspec_policy(), fixed(5, 9, 0.2));
      add("calibrated 4", make_dyspec_policy({&learned()}), fixed(4));
      add("calibrated 4, depth 2", make_dyspec_policy({&learned()}), fixed(4, 2));
      add("by costs", make_dyspec_policy({&learned(), &prices}), fixed(4));
      add("by costs in buckets", make_dyspec_policy({&learned(), &in_buckets}), fixed(4));
      add("by costs in buckets, depth 2", make_dyspec_policy({&learned(), &in_buckets}),
          fixed(4, 2));
      add("chain 4", make_chain_policy(), fixed(4));
      add("chain, by costs", make_chain_policy({&learned(), &prices}), fixed(4));
      add("no draft, dyspec 4", make_dyspec_policy(), fixed(4), false);
      add("no draft, by costs", make_dyspec_policy({&learned(), &prices}), fixed(4), false);
      add("no draft, chain 3", make_chain_policy(), fixed(3), false);
      if (pair.target.vocab() <= 3) {
        add("seeing", make_dyspec_policy({&learned()}), fixed(3), true, 2);
        add("seeing, by costs", make_dyspec_policy({&learned(), &prices}), fixed(3), true, 2);
      }
      for (const Grown& grown : all) {
        const LawError error = rejection_error(pair, grown);
        summary.add(pair.name + ", proposed " + std::to_string(seed) + ", " + grown.name, error);
        accepted = std::max(accepted, error.accepted_length);
        if (error.largest_tree > 2) ++proposed_beside_drawn;
      }
    }
  }
  EXPECT_GT(accepted, 3.0);
  EXPECT_GT(proposed_beside_drawn, 100);
}

// The draft's rows too are processed, by other parameters where it likes.
TEST(Losslessness, TemperaturesFiltersAndPenalties) {
  Summary summary;
  const std::vector<std::pair<SamplingParams, SamplingParams>> settings{
      {{0.6}, {0.6}},
      {{1.5}, {0.7}},
      {{1.0, 2}, {1.0, 2}},
      {{1.0, 3}, {1.0, 2}},
      {{1.0}, {1.0, 2}},
      {{0.8, 0, 0.7}, {0.8, 0, 0.7}},
      {{1.0}, {1.0, 0, 0.5}},
      {{1.0, 0, 1.0, 0.3}, {1.0, 0, 1.0, 0.3}},
      {{1.0, 0, 1.0, 0.0, 1.4}, {1.0, 0, 1.0, 0.0, 1.4}},
      {{1.0, 0, 1.0, 0.0, 1.4}, {1.0}},
      {{1.2, 3, 0.9, 0.05, 1.2}, {1.2, 3, 0.9, 0.05, 1.2}}};
  const auto all = growths();
  for (const auto& [target_params, draft_params] : settings) {
    auto pairs = testing::exact_pairs(target_params, draft_params);
    for (ExactPair& pair : pairs) {
      const bool random = pair.name.rfind("random", 0) == 0 || pair.name == "good draft" ||
                          pair.name == "draft 0 where the target is not";
      if (!random) continue;
      for (const Grown& grown : all) {
        if (grown.cells > 0) continue;  // many paths; the other tests follow them
        summary.add(pair.name + ", " + grown.name, rejection_error(pair, grown));
      }
    }
  }
}

// Rows as they are: their sums are off 1 by float rounding, which the rule takes for 1. That moves
// a node's law by the two sums' errors at most (kernels/rejection_rule.h), as much as rounding has
// moved T. Rows of 5 floats below 1: 5 2^-24 each; 2 rows of up to 5 nodes on a path.
TEST(Losslessness, RowsAsTheyAreServed) {
  Summary summary;
  auto pairs = testing::exact_pairs({0.8}, {0.9}, testing::Rows::as_served);
  const auto all = growths();
  for (ExactPair& pair : pairs) {
    for (const Grown& grown : all) {
      if (grown.name != "dyspec 4" && grown.name != "static 5") continue;
      summary.add(pair.name + ", " + grown.name, rejection_error(pair, grown), 50 * 0x1p-24);
    }
  }
}

// Sizes that follow past acceptance, as automatic ones do, and numbers of two steps: no two
// decisions of a text may share one.
TEST(Losslessness, StepsThatFollowEachOther) {
  const FixedPrices prices;
  const auto adaptive = [](std::int32_t step, std::int32_t last_accepted) {
    GrowthLimits limits;
    limits.max_size = step == 0 ? 2 : 1 + last_accepted;
    limits.max_depth = 1 + last_accepted;
    limits.min_value = last_accepted == 0 ? 0.15 : 0.05;
    return limits;
  };
  std::vector<Grown> all;
  all.push_back({"dyspec, adaptive", make_dyspec_policy(), adaptive});
  all.push_back({"seeing 2", make_dyspec_policy({&learned()}), fixed(2), 2});
  all.push_back({"seeing 2, by costs", make_dyspec_policy({&learned(), &prices}), fixed(2), 2});
  all.push_back({"chain, seeing 2", make_chain_policy({&learned(), &prices}), fixed(2), 2});
  all.push_back({"dyspec 2", make_dyspec_policy(), fixed(2)});
  Summary summary;
  auto pairs = testing::exact_pairs();
  for (ExactPair& pair : pairs) {
    if (pair.target.vocab() > 4) continue;
    for (const Grown& grown : all) {
      if (grown.cells > 0 && pair.target.vocab() > 3) continue;  // too many paths
      summary.add(pair.name + ", " + grown.name, rejection_error(pair, grown, 2));
    }
  }
}

// What a text teaches, as the engine learns it: chances from what was judged, by which numbers, and
// the worth of a position's price from the tokens that came.
class Learned final : public testing::Learning, public GrowthEconomics {
 public:
  explicit Learned(bool learns = true) : learns_(learns) {}
  const AcceptanceCalibration& calibration() const { return calibration_; }

  void begin_text() override {
    calibration_ = untaught_;
    rate_ = 1.0;
  }
  void record(const TokenTree& tree, std::span<const std::int32_t> path) override {
    if (!learns_) return;
    calibration_.record(tree, path);
    rate_ = 0.5 + static_cast<double>(path.size());
  }

  double least_node_cost(std::int32_t) const override { return 0.3 * rate_; }
  double pass_cost(std::int32_t, std::int32_t) const override { return 0.02 * rate_; }
  double verify_cost(std::int32_t size) const override { return 0.3 * rate_ * size; }

 private:
  const bool learns_;
  const AcceptanceCalibration untaught_;
  AcceptanceCalibration calibration_;
  double rate_ = 1.0;
};

// The second step's values and prices follow from what the first one taught. That it taught
// something shows in the trees, hence in how many tokens come.
TEST(Losslessness, StepsThatLearn) {
  Learned learned, unteachable(false);
  const auto growths_by = [](const Learned& by) {
    const AcceptanceCalibration* values = &by.calibration();
    std::vector<Grown> all;
    all.push_back({"learned", make_dyspec_policy({values}), fixed(3)});
    all.push_back({"learned threshold", make_dyspec_policy({values}), fixed(3, 9, 0.3)});
    all.push_back({"learned, by costs", make_dyspec_policy({values, &by}), fixed(3)});
    all.push_back({"learned, seeing", make_dyspec_policy({values}), fixed(2), 2});
    all.push_back({"learned, seeing, by costs", make_dyspec_policy({values, &by}), fixed(2), 2});
    all.push_back({"learned chain, seeing", make_chain_policy({values, &by}), fixed(2), 2});
    return all;
  };
  const auto teachable = growths_by(learned), fixed_values = growths_by(unteachable);
  std::vector<int> taught(teachable.size(), 0);
  Summary summary;
  auto pairs = testing::exact_pairs();
  for (ExactPair& pair : pairs) {
    for (std::size_t i = 0; i < teachable.size(); ++i) {
      if (pair.target.vocab() > 3) continue;  // too many paths
      const LawError error = rejection_error(pair, teachable[i], 2, &learned);
      summary.add(pair.name + ", " + teachable[i].name, error);
      if (taught[i] > 0) continue;
      const LawError untaught = rejection_error(pair, fixed_values[i], 2, &unteachable);
      taught[i] += std::abs(error.accepted_length - untaught.accepted_length) > 1e-6 ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < teachable.size(); ++i) {
    EXPECT_GT(taught[i], 0) << teachable[i].name << ": nothing was learned that changed a tree";
  }
}

// At temperature 0 every path writes the target's choices, whatever the draft draws.
TEST(Losslessness, GreedyForEveryPairAndPolicy) {
  Summary summary;
  auto pairs = testing::exact_pairs({0.0}, {1.0});
  const auto all = growths();
  const auto rule = make_greedy_verifier();
  for (ExactPair& pair : pairs) {
    if (!pair.by_parameters) continue;
    const auto vocab = static_cast<std::int64_t>(pair.target.vocab());
    for (const Grown& grown : all) {
      if (grown.cells > 0) continue;  // any tree is exact
      for (const AcceptanceRule draw :
           {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
        Enumeration enumeration;
        NoiseCache noise(vocab);
        BasicChildDrawer<EnumeratedDecisions> drawer(vocab, noise, EnumeratedDecisions(enumeration),
                                                     0);
        summary.add(pair.name + ", " + grown.name,
                    testing::law_error(enumeration, pair, drawer,
                                       {*grown.policy, *rule, grown.limits, draw}));
      }
    }
  }
}

}  // namespace
}  // namespace coppice::losslessness_test
