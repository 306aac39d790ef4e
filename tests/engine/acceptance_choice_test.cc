// Which acceptance rule a text is written by if nobody says.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/check_speculation.h"
#include "engine/endless_pair.h"
#include "engine/engine_impl.h"
#include "engine/settled_request.h"

namespace coppice::testing {
namespace {

GenerateOptions warm(Speculation speculation) {
  GenerateOptions options = greedy(24);
  options.speculation = std::move(speculation);
  options.sampling.temperature = 0.8;
  options.seed = 5;
  options.acceptance = Acceptance::automatic;
  return options;
}

/// The rule that was used; the text must be what that rule writes when it is named.
Acceptance used(Engine& engine, GenerateOptions options) {
  const Generation g = engine.generate(prompt, options);
  options.acceptance = g.used.acceptance;
  const Generation named = engine.generate(prompt, options);
  EXPECT_EQ(named.tokens, g.tokens);
  EXPECT_EQ(named.used.acceptance, options.acceptance);
  return options.acceptance;
}

/// Verify passes of n rows cost 1 + slope (n - 1) plain ones, draft passes next to nothing.
CostTable planted(double slope) {
  const double most = 1e-3 * (1.0 + slope * 256);
  CostTable costs;
  costs.target = PassCosts(1, 100, {{1, 1e-3, 1e-3}, {257, most, most}});
  costs.draft = PassCosts(1, 100, {{1, 1e-6, 1e-6}, {257, 1e-6, 1e-6}});
  return costs;
}

TEST(AcceptanceChoice, IsByTheSizeThatIsAskedFor) {
  const TinyPair pair(endless(), 0.1);
  Engine engine = Engine::load(pair.options());
  EXPECT_EQ(used(engine, warm(Dyspec{4})), Acceptance::rejection);
  EXPECT_EQ(used(engine, warm(Dyspec{16})), Acceptance::coupled);
  EXPECT_EQ(used(engine, warm(Chain{16})), Acceptance::rejection);
  EXPECT_EQ(used(engine, warm(Sequoia{16, 0, {}})), Acceptance::rejection);
  EXPECT_EQ(used(engine, warm(Plain{})), Acceptance::rejection);
  EXPECT_EQ(used(engine, warm(ExpandRerank{6})), Acceptance::coupled);
  EXPECT_EQ(used(engine, warm(Dyspec{16, true})), Acceptance::rejection);
  GenerateOptions cold = warm(Dyspec{16});
  cold.sampling.temperature = 0.0;
  EXPECT_EQ(used(engine, cold), Acceptance::rejection);
  EXPECT_TRUE(inside(engine).rules.empty()) << "a fixed size says the rule by itself";
}

TEST(AcceptanceChoice, SavedCostsRepeatIt) {
  const TinyPair pair(endless(), 0.1);
  for (const double slope : {0.0, 1.0}) {
    Engine engine = Engine::load(pair.options());
    inside(engine).costs = planted(slope);
    inside(engine).costs_are_saved = true;
    for (int text = 0; text < 2; ++text) {
      EXPECT_EQ(used(engine, warm(Dyspec{})),
                slope == 0.0 ? Acceptance::coupled : Acceptance::rejection);
    }
    EXPECT_TRUE(inside(engine).rules.empty());
  }
}

TEST(AcceptanceChoice, SavedCostsRepeatItWhateverTheListenerDoes) {
  const TinyPair pair(endless(), 0.1);
  const TemporaryFolder folder;
  EngineOptions load = pair.options();
  load.cost_table = folder.path() / "costs.json";
  load.progress = [](const LoadEvent& event) {
    if (event.what == std::string("costs") && event.fraction == 1.0) throw 1;
  };
  Engine engine = Engine::load(load);
  EXPECT_TRUE(inside(engine).costs_are_saved) << "before any text reads it, without a lock";
  EXPECT_THROW(engine.generate(prompt, warm(Dyspec{})), int);
  engine.generate(prompt, warm(Dyspec{}));
  EXPECT_TRUE(inside(engine).rules.empty());
}

TEST(AcceptanceChoice, IsByTheThresholdWithoutASize) {
  const TinyPair pair(endless(), 0.1);
  Engine engine = Engine::load(pair.options());
  EXPECT_EQ(used(engine, warm(DyspecThreshold{0.001})), Acceptance::coupled);
  EXPECT_EQ(used(engine, warm(DyspecThreshold{0.5})), Acceptance::rejection);
}

TEST(AcceptanceChoice, FollowsWhatTextsSaid) {
  const TinyPair pair(endless(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = planted(1.0);
  const GenerateOptions options = warm(Dyspec{});
  EXPECT_EQ(engine.generate(prompt, options).used.acceptance, Acceptance::rejection);
  ASSERT_EQ(inside(engine).rules.size(), 1u);
  RuleChoice& rules = inside(engine).rules.begin()->second;
  for (int text = 0; text < 500; ++text) {
    rules.record(Acceptance::rejection, 1.0, 4.0);
    rules.record(Acceptance::coupled, 2.0, 4.0);
  }
  EXPECT_EQ(engine.generate(prompt, options).used.acceptance, Acceptance::coupled);
  // Another temperature is another question.
  GenerateOptions other = options;
  other.sampling.temperature = 1.2;
  EXPECT_EQ(engine.generate(prompt, other).used.acceptance, Acceptance::rejection);
  EXPECT_EQ(inside(engine).rules.size(), 2u);
  // What is asked for is done, and teaches nothing.
  GenerateOptions named = options;
  named.acceptance = Acceptance::rejection;
  EXPECT_EQ(engine.generate(prompt, named).used.acceptance, Acceptance::rejection);
}

// Where a text's beliefs start from: what is usual, or what the pair's earlier texts have shown,
// but only if nothing is promised to repeat itself.
TEST(InverseTemperatureOfAPair, CarriesOverWhereSizesFollowTheClock) {
  const TinyPair pair(endless(), 0.0);  // the draft equals the target
  GenerateOptions options = warm(Dyspec{});
  options.acceptance = Acceptance::coupled;
  const auto key = std::lround(10.0 * options.sampling.temperature);
  const double usual =
      BeliefTemperature::usual(options.sampling.temperature, options.sampling.temperature);
  for (const bool saved : {false, true}) {
    Engine engine = Engine::load(pair.options());
    inside(engine).costs = planted(0.0);
    inside(engine).costs_are_saved = saved;
    auto& learned = inside(engine).inverse_temperatures;
    double last = usual;
    for (int text = 0; text < 3; ++text) {
      EXPECT_NEAR(SettledRequest(inside(engine), options).draft.inverse_temperature, last,
                  1e-9 * last);
      engine.generate(prompt, options);
      if (saved) {
        EXPECT_TRUE(learned.empty());
        continue;
      }
      ASSERT_EQ(learned.size(), 1u);
      EXPECT_GT(learned[key].start(usual), last) << "it is never wrong";
      last = learned[key].start(usual);
    }
    GenerateOptions fixed = options;
    fixed.speculation = Dyspec{16};
    EXPECT_EQ(SettledRequest(inside(engine), fixed).draft.inverse_temperature, usual);
    engine.generate(prompt, fixed);
    EXPECT_EQ(PairInverseTemperature(learned[key]).start(usual), last)
        << "nor does a fixed size teach";
  }
}

TEST(AcceptanceChoice, StudiesSettleIt) {
  EXPECT_EQ(settled_acceptance(warm(Dyspec{64})), Acceptance::rejection);
  EXPECT_EQ(settled_acceptance(warm(ExpandRerank{8})), Acceptance::coupled);
  GenerateOptions named = warm(Dyspec{64});
  named.acceptance = Acceptance::coupled;
  EXPECT_EQ(settled_acceptance(named), Acceptance::coupled);
  EXPECT_STREQ(name_of(Acceptance::automatic), "auto");
}

}  // namespace
}  // namespace coppice::testing
