#include "sizing/sequence_sizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace coppice {
namespace {

PassCosts steps(double base, double slope) {
  std::vector<PassCosts::Point> points;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    points.push_back({rows, base + slope * rows, base + 2 * slope * rows});
  }
  return PassCosts(0, 100, points);
}

TokenTree chain_of(int length, float prob) {
  TokenTree tree;
  tree.reset(0);
  for (int i = 0; i < length; ++i) tree.add(i, i, 0, prob, tree.path_prob.back());
  return tree;
}

StepPrices::Step alone_of(std::int32_t length) {
  StepPrices::Step step;
  step.kv_tokens = length;
  return step;
}

// Where a chain ends at these prices, if tokens say no more than their depth
// does.
int chain_length(const SequenceSizer& size, int most = 32) {
  double reached = size.calibration().position(0, 1);
  for (int length = 1; length < most; ++length) {
    double reach = reached, gain = 0.0;
    bool pays = false;
    for (int more = 1; length + more <= most && !pays; ++more) {
      reach *= size.calibration().position(0, length + more);
      gain += reach;
      pays = gain > size.prices().verify_cost(length + more) - size.prices().verify_cost(length) +
                        more * size.prices().pass_cost(1, 1);
    }
    if (!pays) return length;
    reached *= size.calibration().position(0, length + 1);
  }
  return most;
}

TEST(SequenceSizer, StopsSpeculatingWhereItNeverPaysAndTriesAgainRarely) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(3e-4, 1e-6)};
  SequenceSizer size(costs, nullptr, AcceptanceRule::rejection, 64);
  int speculated = 0;
  constexpr int steps_run = 1000;
  for (int i = 0; i < steps_run; ++i) {
    if (size.begin_alone(alone_of(50))) {
      ++speculated;
      size.record(chain_of(3, 0.9f), {}, StepWork::alone(3, 3, 50));  // confident and always wrong
    } else {
      size.record_plain();
    }
  }
  EXPECT_LE(speculated, 30);
  EXPECT_GE(speculated, 8) << "it must go on trying";
  EXPECT_EQ(chain_length(size), 1);
}

TEST(SequenceSizer, ComesBackWhenTheDraftBecomesGood) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(5e-5, 1e-6)};
  SequenceSizer size(costs, nullptr, AcceptanceRule::rejection, 64);
  const TokenTree tree = chain_of(3, 0.9f);
  const std::vector<std::int32_t> path = {1, 2, 3};
  for (int i = 0; i < 200; ++i) {
    if (size.begin_alone(alone_of(50))) {
      size.record(tree, {}, StepWork::alone(3, 3, 50));
    } else {
      size.record_plain();
    }
  }
  int speculated = 0;
  for (int i = 0; i < 200; ++i) {
    if (size.begin_alone(alone_of(50))) {
      ++speculated;
      size.record(tree, path, StepWork::alone(3, 3, 50));
    } else {
      size.record_plain();
    }
  }
  EXPECT_GE(speculated, 100);
  EXPECT_GE(chain_length(size), 2);
}

// A machine on which time is what its own table says, and a text whose first children are accepted
// with a fixed probability, by fixed random numbers.
class FakeMachine {
 public:
  FakeMachine(CostTable truth, double acceptance)
      : truth_(std::move(truth)), acceptance_(acceptance) {}

  /// Chains of automatic length, by the costs that are believed and what the clock says of them, if
  /// it is looked at; returns tokens per second of the last `measured` steps.
  double run(SequenceSizer& size, const CostTable& believed, CostCorrection* correction, int steps,
             int measured) {
    double seconds = 0.0, tokens = 0.0;
    speculated_ = 0;
    for (int i = 0; i < steps; ++i) {
      StepSeconds took;
      int accepted = 0;
      if (size.begin_alone(alone_of(prefix))) {
        const int length = chain_length(size);
        took.first_draft = truth_.first_draft_seconds(prefix);
        took.draft = took.first_draft + (length - 1) * truth_.draft.seconds(1, prefix);
        took.verify = truth_.target.seconds(length + 1, prefix);
        took.drawing = 1e-6;
        std::vector<std::int32_t> path;
        while (accepted < length && uniform(random_) < acceptance_) path.push_back(++accepted);
        const StepWork work = StepWork::alone(length, length, prefix);
        if (correction != nullptr) correction->observe_step(believed, work, took);
        size.record(chain_of(length, 0.9f), path, work);
        if (i >= steps - measured) ++speculated_;
        last_length_ = length;
      } else {
        took.verify = truth_.target.seconds(1, prefix);
        if (correction != nullptr) {
          correction->observe_step(believed, StepWork::alone(0, 0, prefix), took);
        }
        size.record_plain();
      }
      if (i < steps - measured) continue;
      seconds += took.draft + took.verify + took.drawing;
      tokens += accepted + 1;
    }
    return tokens / seconds;
  }
  int speculated() const { return speculated_; }
  int last_length() const { return last_length_; }

 private:
  static constexpr std::int32_t prefix = 50;
  static double uniform(std::mt19937& random) {
    return static_cast<double>(random()) / 4294967296.0;
  }
  CostTable truth_;
  double acceptance_;
  std::mt19937 random_{7};
  int speculated_ = 0, last_length_ = 0;
};

PassCosts scaled(const PassCosts& costs, double factor, std::int32_t from_rows = 1,
                 std::int32_t to_rows = 1 << 20) {
  std::vector<PassCosts::Point> points;
  for (std::int32_t rows = 1; rows <= 64; ++rows) {
    const double by = rows >= from_rows && rows <= to_rows ? factor : 1.0;
    points.push_back({rows, by * costs.seconds(rows, 0), by * costs.seconds(rows, 100)});
  }
  return PassCosts(0, 100, points);
}

struct PlantedTable {
  const char* name;
  CostTable table;
};

// Tables as they come from a start on a busy machine, or from another one.
std::vector<PlantedTable> wrong_tables(const CostTable& truth) {
  const auto of = [&](double target, double draft) {
    return CostTable{"x", scaled(truth.target, target), scaled(truth.draft, draft)};
  };
  return {
      {"all of it four times too dear", of(4.0, 4.0)},
      {"all of it four times too cheap", of(0.25, 0.25)},
      {"the draft eight times too dear", of(1.0, 8.0)},
      {"the draft four times too cheap", of(1.0, 0.25)},
      {"plain passes too cheap", {"x", scaled(truth.target, 0.3, 1, 1), truth.draft}},
      {"plain passes too dear", {"x", scaled(truth.target, 3.0, 1, 1), truth.draft}},
      {"judging too dear", {"x", scaled(truth.target, 3.0, 2), truth.draft}},
      {"five rows or more too dear", {"x", scaled(truth.target, 2.0, 5), truth.draft}},
      {"five rows or more too cheap", {"x", scaled(truth.target, 0.5, 5), truth.draft}},
  };
}

TEST(SequenceSizer, SizesRecoverFromAWrongTable) {
  const CostTable truth{"x", steps(1e-3, 2e-5), steps(6e-5, 1e-6)};
  for (const double acceptance : {0.85, 0.6, 0.03}) {
    SequenceSizer right(truth, nullptr, AcceptanceRule::rejection, 0);
    const double best = FakeMachine(truth, acceptance).run(right, truth, nullptr, 2500, 1500);
    for (const PlantedTable& planted : wrong_tables(truth)) {
      CostCorrection correction;
      SequenceSizer size(planted.table, &correction, AcceptanceRule::rejection, 0);
      FakeMachine machine(truth, acceptance);
      const double speed = machine.run(size, planted.table, &correction, 2500, 1500);
      EXPECT_GE(speed, 0.97 * best)
          << planted.name << ", acceptance " << acceptance << ", " << machine.speculated()
          << " steps of length " << machine.last_length();
    }
  }
}

// What the same tables do where the clock is not looked at: the test above can fail.
TEST(SequenceSizer, AWrongTableThatIsNotCorrectedCosts) {
  const CostTable truth{"x", steps(1e-3, 2e-5), steps(6e-5, 1e-6)};
  SequenceSizer right(truth, nullptr, AcceptanceRule::rejection, 0);
  const double best = FakeMachine(truth, 0.85).run(right, truth, nullptr, 2500, 1500);
  int suffered = 0;
  for (const PlantedTable& planted : wrong_tables(truth)) {
    SequenceSizer size(planted.table, nullptr, AcceptanceRule::rejection, 0);
    suffered +=
        FakeMachine(truth, 0.85).run(size, planted.table, nullptr, 2500, 1500) < 0.97 * best;
  }
  EXPECT_GE(suffered, 4);
}

TEST(SequenceSizer, ABusyStartDoesNotEndSpeculation) {
  // By the table, a draft pass costs more than the target's: nothing could pay.
  const CostTable truth{"x", steps(1e-3, 2e-5), steps(6e-5, 1e-6)};
  const CostTable busy{"x", truth.target, scaled(truth.draft, 25.0)};
  CostCorrection correction;
  SequenceSizer size(busy, &correction, AcceptanceRule::rejection, 0);
  FakeMachine machine(truth, 0.85);
  machine.run(size, busy, &correction, 600, 300);
  EXPECT_GE(machine.speculated(), 290);
  // The next text begins with what this one has learned.
  SequenceSizer next(busy, &correction, AcceptanceRule::rejection, 0);
  FakeMachine again(truth, 0.85);
  again.run(next, busy, &correction, 40, 40);
  EXPECT_GE(again.speculated(), 39);
}

// No number of further nodes costs less for each than least_node_cost says, and one
// costs that.
TEST(SequenceSizer, LeastNodeCostIsOfTheBestNumberOfNodes) {
  std::vector<PassCosts::Point> points;
  for (int rows = 1; rows <= 65; ++rows) {  // in buckets of 8, with a dear one
    const double seconds = 1e-3 + 1e-4 * ((rows - 1) / 8) + (rows > 24 ? 1e-3 : 0.0);
    points.push_back({rows, seconds, seconds});
  }
  const CostTable costs{"x", PassCosts(0, 100, points), steps(5e-5, 1e-6)};
  SequenceSizer size(costs, nullptr, AcceptanceRule::rejection, 64);
  ASSERT_TRUE(size.begin_alone(alone_of(50)));
  const auto expect_least = [&](int most) {
    for (int n = 0; n < most; ++n) {
      double least = 1e300;
      for (int more = 1; n + more <= most; ++more) {
        least = std::min(
            least, (size.prices().verify_cost(n + more) - size.prices().verify_cost(n)) / more);
      }
      EXPECT_NEAR(size.prices().least_node_cost(n), least, 1e-12) << n;
    }
  };
  expect_least(32);
  // What a text's trees come near is priced, too.
  std::vector<std::int32_t> all(32);
  std::iota(all.begin(), all.end(), 1);
  size.record(chain_of(32, 0.9f), all, StepWork::alone(32, 32, 50));
  ASSERT_TRUE(size.begin_alone(alone_of(50)));
  expect_least(64);
}

// A step of two nodes, in two draft passes, that took so many times what the table says.
StepSeconds two_nodes(const CostTable& costs, double draft, double verify) {
  StepSeconds took;
  took.first_draft = draft * costs.first_draft_seconds(50);
  took.draft = took.first_draft + draft * costs.draft.seconds(1, 50);
  took.verify = verify * costs.target.seconds(3, 50);
  return took;
}
const StepWork two_nodes_work = StepWork::alone(2, 2, 50);

TEST(SequenceSizer, InterruptedStepsSayNothing) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(1e-4, 1e-6)};
  CostCorrection correction;
  for (int i = 0; i < 60; ++i) {
    const bool disturbed = i % 2 == 0;
    correction.observe_step(costs, two_nodes_work, two_nodes(costs, 1.0, disturbed ? 20.0 : 1.0),
                            disturbed);
  }
  EXPECT_NEAR(correction.factor(Work::verify, 3), 1.0, 0.05);
  EXPECT_NEAR(correction.factor(Work::draft), 1.0, 0.05);
}

// Passes that are longer than what others take are disturbed in every step.
TEST(SequenceSizer, StepsThatAreAllInterruptedSayWhatTheyCost) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(1e-4, 1e-6)};
  CostCorrection correction;
  for (int i = 0; i < 200; ++i) {
    correction.observe_step(costs, two_nodes_work, two_nodes(costs, 4.0, 2.0), true);
  }
  EXPECT_NEAR(correction.factor(Work::verify, 3), 2.0, 0.2);
  EXPECT_NEAR(correction.factor(Work::draft), 4.0, 0.6);
}

TEST(SequenceSizer, TheClockIsLookedAtUnlessSizesAreToRepeatThemselves) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(1e-4, 1e-6)};
  CostCorrection correction;
  SequenceSizer repeats(costs, nullptr, AcceptanceRule::rejection, 64);
  SequenceSizer follows(costs, &correction, AcceptanceRule::rejection, 64);
  ASSERT_TRUE(repeats.begin_alone(alone_of(50)));
  ASSERT_TRUE(follows.begin_alone(alone_of(50)));
  const double before = repeats.prices().verify_cost(2);
  for (int i = 0; i < 100; ++i) {
    correction.observe_step(costs, two_nodes_work, two_nodes(costs, 1.0, 3.0));
  }
  ASSERT_TRUE(repeats.begin_alone(alone_of(50)));
  ASSERT_TRUE(follows.begin_alone(alone_of(50)));
  EXPECT_EQ(repeats.prices().verify_cost(2), before);
  EXPECT_GT(follows.prices().verify_cost(2), 1.2 * before);
}

}  // namespace
}  // namespace coppice
