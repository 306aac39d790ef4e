// The engine against the target's exact law: the first three tokens of many generations, on
// small random models, chi-square and total variation at significance 1e-9 a test. The law comes
// from an independent implementation of the model and of the filters, in double.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/exact_law.h"
#include "engine/pair.h"
#include "engine_impl.h"
#include "verify/planted_faults.h"

namespace coppice::testing {
namespace {

struct Case {
  const char* name;
  Policy policy;
  Acceptance acceptance;
  std::int32_t tree_size;
  double temperature;
  std::int32_t top_k;
  double top_p;
  double repetition_penalty;
  double draft_noise;
  std::vector<std::int32_t> widths = {};
  const char* tree = nullptr;  ///< what the tree file holds
  bool calibrate = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class EngineDistribution : public ::testing::TestWithParam<Case> {};

TEST_P(EngineDistribution, MatchesTheTargetsLaw) {
  const Case& c = GetParam();
  const TinyPair pair(law_shape(5), c.draft_noise);
  EngineOptions load = pair.options();
  if (c.tree_size == 0 && (c.policy == Policy::dyspec || c.policy == Policy::dyspec_threshold ||
                           c.policy == Policy::chain)) {
    // Prices under which large trees pay, then none, whatever this machine's are: written once
    // by the engine, then edited.
    load.cost_table = pair.path() / "costs.json";
    GenerateOptions once;
    once.max_new_tokens = 2;
    Engine::load(load).generate(law_prompt, once);
    nlohmann::json table = nlohmann::json::parse(std::ifstream(load.cost_table));
    for (const char* model : {"target", "draft"}) {
      table[model]["points"] = nlohmann::json::array();
      for (const int rows : {1, 2, 5, 6, 12, 13, 64}) {
        // The target's costs have steps that trees stop at.
        const double seconds =
            model[0] == 't' ? 1e-3 + 3e-5 * rows + (rows > 5 ? 2e-4 : 0) + (rows > 12 ? 1e-3 : 0)
                            : 1e-4 + 1e-6 * rows;
        table[model]["points"].push_back(
            {{"rows", rows}, {"seconds_short", seconds}, {"seconds_long", seconds}});
      }
    }
    std::ofstream(load.cost_table) << table;
  }
  Engine engine = Engine::load(load);
  GenerateOptions options;
  options.policy = c.policy;
  options.acceptance = c.acceptance;
  options.tree_size = c.tree_size;
  options.temperature = c.temperature;
  options.top_k = c.top_k;
  options.top_p = c.top_p;
  options.repetition_penalty = c.repetition_penalty;
  if (c.policy == Policy::dyspec_threshold && c.tree_size > 0) options.threshold = 0.1;
  options.widths = c.widths;
  options.calibrate = c.calibrate;
  if (c.tree != nullptr) {
    options.tree = pair.path() / "tree.json";
    std::ofstream(options.tree) << c.tree;
  }
  double accepted = 0.0;
  const Fit result = fit_of_three(engine, pair.path() / "target", options, &accepted);
  std::cout << "[ " << c.name << " ] " << result.text() << ", accepted length " << accepted << "\n";
  EXPECT_TRUE(result.fits) << result.text();
  if (c.policy != Policy::none) {
    EXPECT_GT(accepted, 1.05) << "speculation was not exercised";
  }
}

constexpr auto rejection = Acceptance::rejection;
constexpr auto coupled = Acceptance::coupled;
constexpr const char* shape = R"({"paths": [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]})";
constexpr const char* grow_map = R"({"acceptance": [0.5, 0.25], "size": 3, "depth": 2,
                                     "expected_length": 2.0, "paths": [[0], [1], [0, 0]]})";
INSTANTIATE_TEST_SUITE_P(
    All, EngineDistribution,
    ::testing::Values(
        Case{"plain", Policy::none, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"plain_coupled", Policy::none, coupled, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8", Policy::dyspec, rejection, 8, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8_bad_draft", Policy::dyspec, rejection, 8, 0.7, 0, 1.0, 1.0, 1.0},
        Case{"dyspec_auto", Policy::dyspec, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_auto_bad_draft", Policy::dyspec, rejection, 0, 1.0, 0, 1.0, 1.0, 1.0},
        Case{"dyspec_auto_coupled", Policy::dyspec, coupled, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8_coupled", Policy::dyspec, coupled, 8, 1.2, 0, 1.0, 1.0, 0.5},
        Case{"calibrated", Policy::dyspec, rejection, 6, 0.8, 0, 1.0, 1.0, 0.5, {}, nullptr, true},
        Case{"calibrated_bad",
             Policy::dyspec,
             rejection,
             4,
             1.0,
             4,
             0.9,
             1.2,
             1.0,
             {},
             nullptr,
             true},
        Case{"calibrated_coupled",
             Policy::dyspec,
             coupled,
             6,
             0.8,
             0,
             1.0,
             1.0,
             0.5,
             {},
             nullptr,
             true},
        Case{"calibrated_threshold",
             Policy::dyspec_threshold,
             rejection,
             12,
             1.0,
             0,
             1.0,
             1.0,
             0.3,
             {},
             nullptr,
             true},
        Case{"dyspec_filters", Policy::dyspec, rejection, 6, 1.0, 4, 0.9, 1.0, 0.3},
        Case{"dyspec_penalty", Policy::dyspec, rejection, 8, 1.0, 0, 1.0, 1.4, 0.3},
        Case{"threshold", Policy::dyspec_threshold, rejection, 12, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"threshold_auto", Policy::dyspec_threshold, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"chain_3", Policy::chain, rejection, 3, 1.0, 0, 0.95, 1.0, 0.3},
        Case{"chain_auto", Policy::chain, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"chain_coupled", Policy::chain, coupled, 3, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"static", Policy::static_tree, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3, {}, shape},
        Case{"static_penalty", Policy::static_tree, rejection, 0, 1.0, 5, 0.9, 1.4, 1.0, {}, shape},
        Case{"static_coupled", Policy::static_tree, coupled, 0, 1.0, 0, 1.0, 1.0, 0.3, {}, shape},
        Case{"specinfer", Policy::specinfer, rejection, 0, 1.0, 0, 1.0, 1.0, 0.5, {2, 2, 1}},
        Case{"specinfer_filters", Policy::specinfer, rejection, 14, 1.0, 4, 0.9, 1.0, 0.3},
        Case{"specinfer_coupled", Policy::specinfer, coupled, 0, 1.0, 0, 1.0, 1.0, 0.3, {3, 1, 2}},
        Case{"sequoia", Policy::sequoia, rejection, 24, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"sequoia_map", Policy::sequoia, rejection, 0, 0.8, 0, 1.0, 1.2, 0.5, {}, grow_map},
        Case{"sequoia_coupled", Policy::sequoia, coupled, 24, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"expand_rerank", Policy::expand_rerank, coupled, 5, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"expand_rerank_filters", Policy::expand_rerank, coupled, 8, 0.8, 4, 0.9, 1.3, 0.6}),
    [](const auto& one) { return std::string(one.param.name); });

// Texts whose first token came with the prompt.
Fit fit_of_fresh(Engine& engine, const TinyPair& pair, const GenerateOptions& options,
                 const std::string& what) {
  const Fit fit = fit_of_three(engine, pair.path() / "target", options, nullptr, usual_draws, true);
  std::cout << "[ fresh prompts, " << what << " ] " << fit.text() << "\n";
  return fit;
}

TEST(EngineDistribution, FreshPromptsMatchTheTargetsLaw) {
  const TinyPair pair(law_shape(5), 0.3);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.temperature = 1.0;
  for (const Acceptance acceptance : {rejection, coupled}) {
    for (const Policy policy : {Policy::none, Policy::dyspec}) {
      options.acceptance = acceptance;
      options.policy = policy;
      options.tree_size = policy == Policy::none ? 0 : 8;
      const Fit fit =
          fit_of_fresh(engine, pair, options, cat(name_of(policy), " ", name_of(acceptance)));
      EXPECT_TRUE(fit.fits) << fit.text();
    }
  }
}

// What the check must notice of that pass.
TEST(EngineDistributionPlanted, FaultsOfFreshPromptsAreCaught) {
  const TinyPair pair(law_shape(5), 0.3);
  Engine engine = Engine::load(pair.options());
  TargetRunner& target = *engine.impl().target_runner;
  GenerateOptions options;
  options.temperature = 1.0;
  options.policy = Policy::dyspec;
  options.acceptance = coupled;
  options.tree_size = 8;
  target.plant(PassFault::logits_by_batch);
  EXPECT_FALSE(fit_of_fresh(engine, pair, options, "logits of the prompt's first row").fits);
  target.plant(PassFault::late_rows_hidden);
  EXPECT_FALSE(fit_of_fresh(engine, pair, options, "the root does not see the prompt").fits);
  target.plant(PassFault::none);
}

// The same check must notice these.
TEST(EngineDistributionPlanted, FaultsAreCaught) {
  const TinyPair pair(law_shape(5), 0.6);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.tree_size = 8;
  options.temperature = 1.0;
  const auto expect_caught = [&](const char* name, int draws = usual_draws) {
    const Fit result = fit_of_three(engine, pair.path() / "target", options, nullptr, draws);
    std::cout << "[ planted: " << name << " ] " << result.text() << "\n";
    EXPECT_FALSE(result.fits) << name << " was not noticed: " << result.text();
  };
  engine.impl().target_runner->plant(PassFault::rope_by_index);
  // One layer of random weights hardly looks at positions: more draws are needed to see it.
  expect_caught("rope by index", 96000);
  engine.impl().target_runner->plant(PassFault::none);

  if (on_cuda()) {
    const auto judge_with = [&](DeviceFault fault, const char* name) {
      engine.impl().sampler->plant(fault);
      expect_caught(name);
      engine.impl().sampler->plant(DeviceFault::none);
    };
    judge_with(DeviceFault::residual_is_target, "bonus from the target where children failed");
    judge_with(DeviceFault::accept_without_residual, "every sibling judged by T / D");
  } else {
    engine.impl().other_rule = [] {
      return make_faulty_rejection_rule(JudgingFault::declared_is_not_sampled);
    };
    expect_caught("declared distribution is not the sampled one");
    engine.impl().other_rule = [] {
      return make_faulty_rejection_rule(JudgingFault::residual_not_renormalised);
    };
    expect_caught("residual not renormalised");
    engine.impl().other_rule = nullptr;
  }

  engine.impl().draft_runner->plant(DrawingFault::declared_is_not_sampled);
  expect_caught("children from a narrower distribution");
  engine.impl().draft_runner->plant(DrawingFault::none);
  EXPECT_TRUE(fit_of_three(engine, pair.path() / "target", options).fits)
      << "without faults it must fit";
}

// Nor may another policy's trees hide a fault.
TEST(EngineDistributionPlanted, FaultsAreCaughtUnderEveryPolicy) {
  const TinyPair pair(law_shape(5), 0.6);
  Engine engine = Engine::load(pair.options());
  Engine::Impl& impl = engine.impl();
  GenerateOptions options;
  options.temperature = 1.0;
  const auto fit_of = [&](const std::string& what) {
    const Fit result = fit_of_three(engine, pair.path() / "target", options);
    std::cout << "[ " << name_of(options.policy) << ", " << what << " ] " << result.text() << "\n";
    return result.fits;
  };
  for (const Policy policy : {Policy::static_tree, Policy::specinfer, Policy::sequoia}) {
    options.policy = policy;
    options.widths.clear();
    options.tree.clear();
    options.tree_size = policy == Policy::sequoia ? 8 : 0;
    options.tree_depth = policy == Policy::sequoia ? 2 : 0;  // else a chain would be best
    if (policy == Policy::specinfer) options.widths = {3, 2};
    if (policy == Policy::static_tree) {
      options.tree = pair.path() / "tree.json";
      std::ofstream(options.tree) << shape;
    }
    if (on_cuda()) {
      impl.sampler->plant(DeviceFault::residual_is_target);
      EXPECT_FALSE(fit_of("planted: bonus from the target where children failed"));
      impl.sampler->plant(DeviceFault::none);
    } else {
      impl.other_rule = [] {
        return make_faulty_rejection_rule(JudgingFault::residual_not_renormalised);
      };
      EXPECT_FALSE(fit_of("planted: residual not renormalised"));
      impl.other_rule = nullptr;
    }
    impl.draft_runner->plant(DrawingFault::declared_is_not_sampled);
    EXPECT_FALSE(fit_of("planted: children from a narrower distribution"));
    impl.draft_runner->plant(DrawingFault::none);
    EXPECT_TRUE(fit_of("without faults"));
  }
  if (on_cuda()) return;  // planted rules judge on the host
  // What is refused for expand_rerank: its trees, judged as if they had been drawn.
  options = {};
  options.temperature = 1.0;
  options.policy = Policy::expand_rerank;
  options.acceptance = Acceptance::coupled;
  options.tree_size = 4;
  impl.other_rule = [] { return make_rejection_rule(); };
  EXPECT_FALSE(fit_of("planted: judged by rejection"));
  impl.other_rule = nullptr;
  EXPECT_TRUE(fit_of("without faults"));
}

}  // namespace
}  // namespace coppice::testing
