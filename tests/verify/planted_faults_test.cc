// The computation of losslessness_test.cc must notice every planted fault, on one pair at least.
#include "verify/planted_faults.h"

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/expand_rerank.h"
#include "drafting/growth_economics.h"
#include "drafting/planted_faults-inl.h"
#include "drafting/sequoia.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "reference/exact_law.h"
#include "reference/faulty_policies.h"
#include "reference/oracle.h"
#include "reference/table_proposer.h"
#include "reference/wrapped_policy.h"
#include "verify/planted_faults-inl.h"

namespace coppice {
namespace {

using testing::EnumeratedDecisions;
using testing::Enumeration;
using testing::ExactPair;
using testing::LawError;

constexpr double tolerance = 1e-12;  // losslessness_test.cc derives it

struct Planted {
  DraftPolicy& policy;
  std::optional<JudgingFault> judging = std::nullopt;
  DrawingFault drawing = DrawingFault::none;
  std::int32_t size = 4;
  std::int32_t steps = 1;
  AcceptanceRule draw = AcceptanceRule::rejection;
  std::int32_t cells = 0;  // how finely growth sees the numbers that judge
  std::function<std::unique_ptr<testing::Learning>(const EnumeratedDecisions&)> learning = {};
  std::function<std::unique_ptr<Proposer>(std::size_t vocab, const EnumeratedDecisions&)> proposer =
      {};
  std::int32_t depth = 1 << 20;
};

LawError error_of(ExactPair& pair, const Planted& setup) {
  Enumeration enumeration;
  const EnumeratedDecisions decide(enumeration);
  const auto vocab = static_cast<std::int64_t>(pair.target.vocab());
  NoiseCache noise(vocab);
  FaultyChildDrawer<EnumeratedDecisions> drawer(vocab, noise, setup.drawing, decide, setup.cells);
  const std::unique_ptr<Verifier> rule =
      setup.judging ? make_faulty_rejection_verifier(*setup.judging, decide)
                    : std::make_unique<RejectionVerifier<EnumeratedDecisions>>(decide);
  const auto learning = setup.learning ? setup.learning(decide) : nullptr;
  const auto proposer = setup.proposer ? setup.proposer(pair.target.vocab(), decide) : nullptr;
  testing::LimitsRule limits = testing::fixed(setup.size, setup.depth);
  if (proposer) limits = testing::proposing(limits, *proposer);
  return testing::law_error(enumeration, pair, drawer,
                            {setup.policy, *rule, limits, setup.draw, setup.steps, learning.get()});
}

// One whose trees hang on the numbers, of two cells each.
AcceptanceCalibration heeding_numbers() {
  AcceptanceCalibration calibration;
  for (int i = 0; i < 200; ++i) {
    const double share = 0.05 + 0.1 * (i % 10);
    calibration.observe(i / 10 % 2, 1, share, true, 0.25);
    calibration.observe(i / 10 % 2, 1, share, false, 0.75);
  }
  calibration.update();
  return calibration;
}

// Looks through the pairs to the first whose law is off by more than rounding ever is; without
// the fault that pair's law is the target's. Returns what was found.
LawError expect_caught(const std::string& fault, const Planted& setup) {
  constexpr double far_off = 1e-6;
  static auto pairs = testing::exact_pairs();
  LawError error;
  for (ExactPair& pair : pairs) {
    if (setup.steps > 1 && pair.target.vocab() > 3) continue;
    error = error_of(pair, setup);
    EXPECT_NEAR(error.total, 1.0, tolerance) << fault;
    if (error.largest < far_off) continue;
    std::cout << fault << ": " << pair.name << " " << error.text() << "\n";
    const AcceptanceCalibration calibration = heeding_numbers();
    const bool calibrated = setup.cells > 0 || setup.proposer;
    const auto correct_policy = make_dyspec_policy({calibrated ? &calibration : nullptr});
    Planted without{*correct_policy, std::nullopt, DrawingFault::none,
                    setup.size,      setup.steps,  AcceptanceRule::rejection,
                    setup.cells};
    without.depth = setup.depth;
    if (setup.proposer) {
      without.proposer = [](std::size_t vocab, const EnumeratedDecisions&) {
        return std::make_unique<testing::TableProposer>(vocab, 2, 2);
      };
    }
    const LawError correct = error_of(pair, without);
    EXPECT_LE(correct.largest, tolerance) << "without " << fault << ": " << correct.text();
    EXPECT_FALSE(correct.address_shared) << "without " << fault;
    return error;
  }
  ADD_FAILURE() << fault << " was not seen; the last pair: " << error.text();
  return error;
}

class JudgingFaults : public ::testing::TestWithParam<JudgingFault> {};

TEST_P(JudgingFaults, IsCaught) {
  const auto policy = make_dyspec_policy();
  const LawError found =
      expect_caught(make_faulty_rejection_verifier(GetParam())->name(), {*policy, GetParam()});
  EXPECT_EQ(found.address_shared, GetParam() == JudgingFault::siblings_share_uniform ||
                                      GetParam() == JudgingFault::residual_shares_draft_noise);
}

INSTANTIATE_TEST_SUITE_P(All, JudgingFaults,
                         ::testing::Values(JudgingFault::residual_not_renormalised,
                                           JudgingFault::small_residual_is_target,
                                           JudgingFault::accepts_at_zero,
                                           JudgingFault::siblings_share_uniform,
                                           JudgingFault::residual_shares_draft_noise,
                                           JudgingFault::sibling_order_lost,
                                           JudgingFault::declared_is_not_sampled),
                         [](const auto& of) {
                           std::string name = make_faulty_rejection_verifier(of.param)->name();
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// --- proposed children ------------------------------------------------------------------------

std::unique_ptr<Proposer> table_proposer(std::size_t vocab, const EnumeratedDecisions&) {
  return std::make_unique<testing::TableProposer>(vocab, 2, 2);
}

class ProposalFaults : public ::testing::TestWithParam<JudgingFault> {};

TEST_P(ProposalFaults, IsCaught) {
  const AcceptanceCalibration calibration;
  const auto policy = make_dyspec_policy({&calibration});
  Planted setup{*policy, GetParam()};
  setup.proposer = table_proposer;
  setup.depth = 2;  // so that proposed children have siblings
  expect_caught(make_faulty_rejection_verifier(GetParam())->name(), setup);
}

INSTANTIATE_TEST_SUITE_P(All, ProposalFaults,
                         ::testing::Values(JudgingFault::draft_keeps_looked_up,
                                           JudgingFault::residual_keeps_looked_up,
                                           JudgingFault::siblings_share_uniform,
                                           JudgingFault::sibling_order_lost),
                         [](const auto& of) {
                           std::string name = make_faulty_rejection_verifier(of.param)->name();
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// Knows what the text will be: it proposes a token only where the number that judges it is above a
// half.
class Clairvoyant final : public Proposer {
 public:
  Clairvoyant(std::size_t vocab, EnumeratedDecisions decide)
      : proposer_(vocab, 2, 2), decide_(std::move(decide)) {}
  void begin() override {}
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but) override {
    const auto children = std::count(candidates.parent.begin(), candidates.parent.end(), node);
    const RandomAddress at{RandomStream::accept,
                           {1, 2, 0, 2},
                           candidates.key[static_cast<std::size_t>(node)],
                           static_cast<std::uint64_t>(children)};
    if (!decide_.look(at, [](double u) { return u > 0.5; })) return std::nullopt;
    return proposer_.next(candidates, node, but);
  }

 private:
  testing::TableProposer proposer_;
  EnumeratedDecisions decide_;
};

TEST(ProposalFaults, LookingAtTheNumberThatWillJudge) {
  const AcceptanceCalibration calibration;
  const auto policy = make_dyspec_policy({&calibration});
  Planted setup{*policy};
  setup.size = 2;
  setup.proposer = [](std::size_t vocab, const EnumeratedDecisions& decide) {
    return std::make_unique<Clairvoyant>(vocab, decide);
  };
  expect_caught("a proposer that sees the number", setup);
}

// The draft may draw what was proposed, again.
TEST(ProposalFaults, DraftIsNotTold) {
  class Untold final : public DraftPolicy {
   public:
    Untold() : policy_(make_dyspec_policy({&calibration_})) {}
    std::string name() const override { return "untold"; }
    void begin(const GrowthLimits& limits, TokenId root) override { policy_->begin(limits, root); }
    Growth growth() const override { return policy_->growth(); }
    void take(DraftSource& source) override {
      Deaf deaf(source);
      policy_->take(deaf);
    }
    void finish(TokenTree& tree) override { policy_->finish(tree); }

   private:
    // Ranks still count; the token is one that D never has.
    class Deaf final : public DraftSource {
     public:
      explicit Deaf(DraftSource& source) : source_(source) {}
      std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                      std::int32_t rank) override {
        std::int32_t drawn = rank;
        for (std::size_t n = 1; n < candidates.token.size(); ++n) {
          if (candidates.parent[n] == node && candidates.is_certain(static_cast<std::int32_t>(n)))
            --drawn;
        }
        return source_.child(candidates, node, drawn);
      }
      double expected_share(std::int32_t node) override { return source_.expected_share(node); }

     private:
      DraftSource& source_;
    };
    const AcceptanceCalibration calibration_;
    std::unique_ptr<DraftPolicy> policy_;
  } policy;
  Planted setup{policy};
  setup.proposer = table_proposer;
  setup.depth = 2;  // so that proposed children have siblings
  expect_caught("the draft is not told of proposals", setup);
}

TEST(DrawingFaults, NodesOfEqualDepthShareNoise) {
  const auto policy = make_dyspec_policy();
  const LawError found =
      expect_caught("nodes of equal depth share noise",
                    {*policy, std::nullopt, DrawingFault::same_depth_shares_noise, 5});
  EXPECT_TRUE(found.address_shared);
}

TEST(DrawingFaults, RetriedPositionSharesNoise) {
  const auto policy = make_dyspec_policy();
  const LawError found =
      expect_caught("a retried position shares noise",
                    {*policy, std::nullopt, DrawingFault::retry_shares_noise, 3, 2});
  EXPECT_TRUE(found.address_shared);
}

TEST(DrawingFaults, DeclaredIsNotSampled) {
  const auto policy = make_dyspec_policy();
  expect_caught("children of the top two, raw D declared",
                {*policy, std::nullopt, DrawingFault::declared_is_not_sampled});
}

TEST(PolicyFaults, TiesOrderedByToken) {
  const auto policy = testing::make_token_tie_policy();
  expect_caught(policy->name(), {*policy, std::nullopt, DrawingFault::none, 2});
}

TEST(PolicyFaults, SizeInHindsight) {
  const auto policy = testing::make_hindsight_policy();
  expect_caught(policy->name(), {*policy});
}

// Growth that looks ahead chooses positions by tokens that it may then drop: exact where any tree
// is, and biased under rejection, which is why the engine does not do it there.
TEST(PolicyFaults, LookingAhead) {
  const AcceptanceCalibration nothing;
  const auto policy = make_dyspec_policy({&nothing, nullptr, true});
  expect_caught("looking ahead", {*policy});
}

// A chain that compares what it has drawn with a proposal, and drops the one or the other.
TEST(PolicyFaults, ProposalAfterTheDraw) {
  const auto policy = make_chain_policy({nullptr, nullptr, true});
  Planted setup{*policy};
  setup.proposer = [](std::size_t vocab, const EnumeratedDecisions&) {
    return std::make_unique<testing::TableProposer>(vocab, 1, 1);
  };
  expect_caught("a proposal that waits for the draw", setup);
}

TEST(PolicyFaults, AutomaticSizeThatLooksAtChildren) {
  class Prices final : public GrowthEconomics {
   public:
    double least_node_cost(std::int32_t) const override { return 0.02; }
    double pass_cost(std::int32_t, std::int32_t) const override { return 0.03; }
    double verify_cost(std::int32_t size) const override { return 0.15 * size; }
  } prices;
  const AcceptanceCalibration nothing;
  const auto policy = make_dyspec_policy({&nothing, &prices, true});
  expect_caught("automatic size that looks at children", {*policy});
}

// Growth may look at the numbers of ancestors and earlier siblings, and at no others.
TEST(PolicyFaults, LooksAtALaterSiblingsNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const auto policy = make_dyspec_policy({&calibration});
  expect_caught("the number of the next sibling is seen",
                {*policy, std::nullopt, DrawingFault::looks_at_next_sibling, 3, 1,
                 AcceptanceRule::rejection, 2});
}

TEST(PolicyFaults, LooksAtAnotherStepsNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const auto policy = make_dyspec_policy({&calibration});
  expect_caught("the number of the next step is seen",
                {*policy, std::nullopt, DrawingFault::looks_at_next_step, 2, 2,
                 AcceptanceRule::rejection, 2});
}

// Learns between steps, as it should, or before a step from the number that will judge the second
// child of its root: which decides whether that child is drawn.
class LearnsFromNumbers final : public testing::Learning {
 public:
  LearnsFromNumbers(AcceptanceCalibration& calibration, bool too_early,
                    const EnumeratedDecisions& decide)
      : calibration_(calibration), too_early_(too_early), decide_(decide) {}
  void begin_text() override { calibration_ = AcceptanceCalibration(AcceptanceRule::rejection); }
  void begin_step(const StepKey& key) override {
    if (!too_early_) return;
    const bool accepted = decide_.look({RandomStream::accept, key, root_node_key, 1},
                                       [](double u) { return u < 0.5; });
    for (int i = 0; i < 50; ++i) calibration_.observe(1, 1, 0.1 + 0.1 * (i % 9), accepted);
    calibration_.update();
  }
  void record(const TokenTree& tree, std::span<const std::int32_t> path) override {
    calibration_.record(tree, path);
  }

 private:
  AcceptanceCalibration& calibration_;
  const bool too_early_;
  const EnumeratedDecisions decide_;
};

Planted two_learning_steps(DraftPolicy& policy, AcceptanceCalibration& calibration,
                           bool too_early) {
  Planted setup{policy, std::nullopt, DrawingFault::none, 2, 2, AcceptanceRule::rejection, 2};
  setup.learning = [&calibration, too_early](const EnumeratedDecisions& decide) {
    return std::make_unique<LearnsFromNumbers>(calibration, too_early, decide);
  };
  return setup;
}

TEST(LearningFaults, FromTheStepAtHand) {
  AcceptanceCalibration calibration;
  const auto policy = make_dyspec_policy({&calibration});
  expect_caught("learning from the step at hand", two_learning_steps(*policy, calibration, true));
  auto pairs = testing::exact_pairs();
  for (ExactPair& pair : pairs) {
    if (pair.target.vocab() > 3) continue;
    const LawError error = error_of(pair, two_learning_steps(*policy, calibration, false));
    EXPECT_LE(error.largest, tolerance) << pair.name << ", between steps: " << error.text();
  }
}

// Leaves out children whose own number nearly refuses them.
class KeepsHopefulChildren final : public testing::WrappedPolicy {
 public:
  using WrappedPolicy::WrappedPolicy;
  std::string name() const override { return "a child's own number decides whether it is drawn"; }
  void take(DraftSource& source) override {
    class Hopeful final : public DraftSource {
     public:
      explicit Hopeful(DraftSource& source) : source_(source) {}
      std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                      std::int32_t rank) override {
        const auto drawn = source_.child(candidates, node, rank);
        return drawn && drawn->uniform > 0.5f ? std::nullopt : drawn;
      }

     private:
      DraftSource& source_;
    } hopeful(source);
    WrappedPolicy::take(hopeful);
  }
};

// Under which the second token of a chain is drawn or not as the first one's number says.
class ChainPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.0; }
  double pass_cost(std::int32_t, std::int32_t) const override { return 0.0; }
  double verify_cost(std::int32_t size) const override { return 0.25 * size; }
};

TEST(PolicyFaults, AChainsTokensOwnNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const ChainPrices prices;
  KeepsHopefulChildren policy(make_chain_policy({&calibration, &prices}));
  expect_caught("chain: " + policy.name(),
                {policy, std::nullopt, DrawingFault::none, 3, 1, AcceptanceRule::rejection, 2});
}

TEST(PolicyFaults, AChainLooksAtAnotherStepsNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const ChainPrices prices;
  const auto policy = make_chain_policy({&calibration, &prices});
  expect_caught("chain: the number of the next step is seen",
                {*policy, std::nullopt, DrawingFault::looks_at_next_step, 2, 2,
                 AcceptanceRule::rejection, 2});
}

// Under which trees by costs hang on the numbers: nodes in pairs, passes cheap.
class PairPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.0; }
  double pass_cost(std::int32_t, std::int32_t) const override { return 0.02; }
  double verify_cost(std::int32_t size) const override { return 0.2 * ((size + 1) / 2); }
};

TEST(PolicyFaults, ByCostsATokensOwnNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  KeepsHopefulChildren policy(make_dyspec_policy({&calibration, &prices}));
  expect_caught("by costs: " + policy.name(),
                {policy, std::nullopt, DrawingFault::none, 3, 1, AcceptanceRule::rejection, 2});
}

TEST(PolicyFaults, ByCostsALaterSiblingsNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  expect_caught("by costs: the number of the next sibling is seen",
                {*policy, std::nullopt, DrawingFault::looks_at_next_sibling, 3, 1,
                 AcceptanceRule::rejection, 2});
}

TEST(PolicyFaults, ByCostsAnotherStepsNumber) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  const auto policy = make_dyspec_policy({&calibration, &prices});
  expect_caught("by costs: the number of the next step is seen",
                {*policy, std::nullopt, DrawingFault::looks_at_next_step, 2, 2,
                 AcceptanceRule::rejection, 2});
}

// Gives the last row back if its token is nearly lost: what a step could save that may drop.
class DropsTheLastRow final : public testing::WrappedPolicy {
 public:
  using WrappedPolicy::WrappedPolicy;
  std::string name() const override { return "the last token drawn is dropped if it is lost"; }
  void finish(TokenTree& tree) override {
    TokenTree whole = tree;
    WrappedPolicy::finish(whole);
    std::vector<std::int32_t> kept;
    for (std::int32_t node = 1; node < whole.nodes(); ++node) kept.push_back(node);
    if (!kept.empty() && whole.uniform.back() > 0.5f) kept.pop_back();
    tree.assign_part(whole, kept);
  }

 private:
};

TEST(PolicyFaults, ByCostsATokenThatIsDropped) {
  const AcceptanceCalibration calibration = heeding_numbers();
  const PairPrices prices;
  DropsTheLastRow policy(make_dyspec_policy({&calibration, &prices}));
  expect_caught("by costs: " + policy.name(),
                {policy, std::nullopt, DrawingFault::none, 3, 1, AcceptanceRule::rejection, 2});
}

TEST(PolicyFaults, AChildsOwnNumber) {
  KeepsHopefulChildren policy(make_dyspec_policy());
  expect_caught(policy.name(),
                {policy, std::nullopt, DrawingFault::none, 3, 1, AcceptanceRule::rejection, 2});
}

// Why the factory refuses sampled rejection. (It is told another way of drawing here.)
TEST(PolicyFaults, ExpandRerankUnderRejection) {
  const auto policy = make_expand_rerank_policy({2, 2}, AcceptanceRule::greedy);
  expect_caught("expand-rerank of sampled children",
                {*policy, std::nullopt, DrawingFault::none, 3});
  expect_caught("expand-rerank of top children",
                {*policy, std::nullopt, DrawingFault::none, 3, 1, AcceptanceRule::greedy});
}

// Draws one child more of every node and leaves out the least probable of them: post-hoc
// pruning, as a reader of papers on top-k trees might do it.
class PrunedSpecinfer final : public testing::WrappedPolicy {
 public:
  PrunedSpecinfer() : WrappedPolicy(make_specinfer_policy({2})) {}
  std::string name() const override { return "specinfer <2>, best two of three children"; }
  void take(DraftSource& source) override {
    Pruning pruning(source);
    WrappedPolicy::take(pruning);
  }

 private:
  class Pruning final : public DraftSource {
   public:
    explicit Pruning(DraftSource& source) : source_(source) {}
    std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                    std::int32_t rank) override {
      std::vector<DrawnChild>& children = children_[node];
      if (rank == 0) {
        for (std::int32_t i = 0; i < 3; ++i) {
          const auto drawn = source_.child(candidates, node, i);
          if (!drawn) break;
          children.push_back(*drawn);
        }
        if (children.size() == 3) {
          children.erase(
              std::min_element(children.begin(), children.end(),
                               [](const auto& a, const auto& b) { return a.prob < b.prob; }));
        }
      }
      const auto i = static_cast<std::size_t>(rank);
      return i < children.size() ? std::optional(children[i]) : std::nullopt;
    }

   private:
    DraftSource& source_;
    std::map<std::int32_t, std::vector<DrawnChild>> children_;
  };
};

TEST(PolicyFaults, PruningAfterDrawing) {
  PrunedSpecinfer policy;
  expect_caught(policy.name(), {policy});
}

// The best trees in hindsight, judged as if they had been drawn.
TEST(PolicyFaults, OracleUnderRejection) {
  static auto pairs = testing::exact_pairs();
  class Oracle final : public DraftPolicy {
   public:
    std::string name() const override { return "oracle"; }
    void begin(const GrowthLimits& limits, TokenId root) override {
      DraftPolicy::begin(limits, root);
      // By what the draft knows; the target's own rows would do as much harm.
      candidates_ = oracle_tree(root, limits, [&](std::span<const TokenId> path) {
        return std::span<const float>(rows_->after({path.begin(), path.end()}));
      });
    }
    void take(DraftSource&) override {
      if (++frontier_[0] == candidates_.nodes()) frontier_.clear();
    }
    testing::PathRows* rows_ = nullptr;
  } policy;
  int caught = 0;
  for (ExactPair& pair : pairs) {
    policy.rows_ = &pair.draft;
    caught += error_of(pair, {policy, std::nullopt, DrawingFault::none, 2}).largest > 1e-6 ? 1 : 0;
  }
  EXPECT_GT(caught, 0);
}

// The same with fixed shapes in DySpec's place. Two faults of drawing leave the law of a fixed
// shape alone, for of nodes that share noise because their depths are equal, or because one
// retries the other's position, at most one has its children judged, and the shape, unlike
// DySpec's, does not depend on what the others drew. That they share a number is seen.
class FixedShapes : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<DraftPolicy> policy() {
    if (!GetParam()) {
      return make_static_policy(TreeShape(std::vector<RankPath>{{0}, {1}, {0, 0}, {1, 0}, {2}}));
    }
    return make_sequoia_policy(plan_sequoia(std::vector<double>{0.25, 0.4, 0.2}, {4, 2, 3}));
  }
};

TEST_P(FixedShapes, FaultsAreCaught) {
  const auto grown = policy();
  for (const JudgingFault fault :
       {JudgingFault::residual_not_renormalised, JudgingFault::small_residual_is_target,
        JudgingFault::siblings_share_uniform, JudgingFault::sibling_order_lost}) {
    expect_caught(grown->name() + ", " + make_faulty_rejection_verifier(fault)->name(),
                  {*grown, fault, DrawingFault::none, 5});
  }
  expect_caught(grown->name() + ", children of the top two, raw D declared",
                {*grown, std::nullopt, DrawingFault::declared_is_not_sampled, 5});
}

INSTANTIATE_TEST_SUITE_P(All, FixedShapes, ::testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "Sequoia" : "Static");
});

TEST(DrawingFaults, SharedNumbersOfFixedShapesAreSeen) {
  const auto grown = make_static_policy(TreeShape(std::vector<RankPath>{{0}, {1}, {0, 0}, {1, 0}}));
  auto pairs = testing::exact_pairs();
  ExactPair& pair = pairs.front();
  EXPECT_FALSE(error_of(pair, {*grown}).address_shared);
  EXPECT_TRUE(
      error_of(pair, {*grown, std::nullopt, DrawingFault::same_depth_shares_noise}).address_shared);
}

}  // namespace
}  // namespace coppice
