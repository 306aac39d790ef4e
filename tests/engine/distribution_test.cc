// The whole engine against the target's exact law, once per rule: the first three tokens of many
// generations, on small random models, chi-square and total variation at significance 1e-9 a test.
// The law comes from an independent implementation of the model and of the filters, in double.
// That growth and judgement leave the law alone is computed in verify/losslessness_test.cc, for
// every policy; what is left for samples is what stands around them: passes, rows, keys, filters.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "engine/sampled_law.h"
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
  bool plain_values = false;
};

// The policies of few draws differ from the others in growth alone.
constexpr int few_draws = 300;
bool drawn_often(const Case& c) {
  return c.policy == Policy::none || (c.policy == Policy::dyspec && !c.plain_values);
}

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
  options.plain_values = c.plain_values;
  if (c.tree != nullptr) {
    options.tree = pair.path() / "tree.json";
    std::ofstream(options.tree) << c.tree;
  }
  double accepted = 0.0;
  const Fit result = fit_of_three(engine, pair.path() / "target", options, &accepted,
                                  drawn_often(c) ? usual_draws : few_draws);
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
        Case{"dyspec_auto", Policy::dyspec, rejection, 0, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8_coupled", Policy::dyspec, coupled, 8, 1.2, 0, 1.0, 1.0, 0.5},
        Case{
            "plain_values", Policy::dyspec, rejection, 6, 0.8, 0, 1.0, 1.0, 0.5, {}, nullptr, true},
        Case{"dyspec_bad_draft", Policy::dyspec, rejection, 4, 1.0, 4, 0.9, 1.2, 1.0},
        Case{"dyspec_6_coupled", Policy::dyspec, coupled, 6, 0.8, 0, 1.0, 1.0, 0.5},
        Case{"dyspec_filters_penalty", Policy::dyspec, rejection, 6, 0.8, 4, 0.9, 1.4, 0.5},
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
  if (on_cuda()) {
    engine.impl().target_runner->plant(PassFault::rope_by_index);
    // One layer of random weights hardly looks at positions: more draws are needed to see it.
    expect_caught("rope by index", 96000);
    engine.impl().target_runner->plant(PassFault::none);
    engine.impl().sampler->plant(DeviceFault::residual_is_target);
    expect_caught("bonus from the target where children failed");
    engine.impl().sampler->plant(DeviceFault::none);
  } else {
    engine.impl().other_rule = [] {
      return make_faulty_rejection_rule(JudgingFault::declared_is_not_sampled);
    };
    expect_caught("declared distribution is not the sampled one");
    engine.impl().other_rule = nullptr;
  }
  engine.impl().draft_runner->plant(DrawingFault::declared_is_not_sampled);
  expect_caught("children from a narrower distribution");
  engine.impl().draft_runner->plant(DrawingFault::none);
  EXPECT_TRUE(fit_of_three(engine, pair.path() / "target", options).fits)
      << "without faults it must fit";
}

// On the CPU what a tree's rows say is compared with what one token a pass says.
TEST(EngineDistributionPlanted, RopeByIndexIsSeenInTheLogProbabilities) {
  if (on_cuda()) GTEST_SKIP() << "bf16 hides it: the law is sampled above";
  const TinyPair pair;
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.temperature = 1.0;
  options.acceptance = coupled;
  options.tree_size = 8;
  options.max_new_tokens = 40;
  options.ignore_eos = true;
  options.logprobs = true;
  const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
  const auto largest_difference = [&] {
    double largest = 0.0;
    options.policy = Policy::none;
    const Generation plain = engine.generate(prompt, options);
    options.policy = Policy::dyspec;
    const Generation fast = engine.generate(prompt, options);
    EXPECT_EQ(plain.tokens.size(), 40u);
    for (std::size_t i = 0; i < 40 && plain.tokens[i] == fast.tokens[i]; ++i) {
      largest = std::max(largest, std::abs(plain.logprobs[i].logprob - fast.logprobs[i].logprob));
    }
    return largest;
  };
  constexpr double rounding = 1e-4;  // exact_logits.h
  EXPECT_LT(largest_difference(), rounding);
  engine.impl().target_runner->plant(PassFault::rope_by_index);
  EXPECT_GT(largest_difference(), 10.0 * rounding);
  engine.impl().target_runner->plant(PassFault::none);
}

}  // namespace
}  // namespace coppice::testing
