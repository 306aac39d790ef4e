// The whole engine against the target's exact law, once per rule: the first three tokens of many
// generations, on small random models, chi-square and total variation at significance 1e-9 a test.
// The law comes from an independent implementation of the model and of the filters, in double.
// That growth and judgement leave the law alone is computed in verify/losslessness_test.cc, for
// every policy; what is left for samples is what stands around them: passes, rows, keys, filters.
#include <gtest/gtest.h>

#include <iostream>

#include "engine/check_speculation.h"
#include "engine/engine_impl.h"
#include "engine/law_prices.h"
#include "engine/pair.h"
#include "engine/sampled_law.h"
#include "reference/pass_faults.h"
#include "verify/planted_faults.h"

namespace coppice::testing {
namespace {

struct Case {
  const char* name;
  Speculation speculation;
  Acceptance acceptance;
  double temperature;
  std::int32_t top_k;
  double top_p;
  double repetition_penalty;
  double draft_noise;
};

bool is_plain(const Case& c) { return std::holds_alternative<Plain>(c.speculation); }

// The policies of few draws differ from the others in growth alone.
constexpr int few_draws = 300;
bool drawn_often(const Case& c) {
  const auto* dyspec = std::get_if<Dyspec>(&c.speculation);
  return is_plain(c) || (dyspec != nullptr && !dyspec->plain_values);
}

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class EngineDistribution : public ::testing::TestWithParam<Case> {};

TEST_P(EngineDistribution, MatchesTheTargetsLaw) {
  const Case& c = GetParam();
  const TinyPair pair(law_shape(5), c.draft_noise);
  EngineOptions load = pair.options();
  if (sized_by_costs(c.speculation) && asked_size(c.speculation) == 0) {
    load.cost_table = write_law_prices(pair);
  }
  Engine engine = Engine::load(load);
  GenerateOptions options;
  options.speculation = c.speculation;
  options.acceptance = c.acceptance;
  options.sampling.temperature = c.temperature;
  options.sampling.top_k = c.top_k;
  options.sampling.top_p = c.top_p;
  options.sampling.repetition_penalty = c.repetition_penalty;
  double accepted = 0.0;
  const Fit result = fit_of_three(engine, pair.path() / "target", options, &accepted,
                                  drawn_often(c) ? usual_draws : few_draws);
  std::cout << "[ " << c.name << " ] " << result.text() << ", accepted length " << accepted << "\n";
  EXPECT_TRUE(result.fits) << result.text();
  if (!is_plain(c)) {
    EXPECT_GT(accepted, 1.05) << "speculation was not exercised";
  }
}

constexpr auto rejection = Acceptance::rejection;
constexpr auto coupled = Acceptance::coupled;
const StaticTree shape = {{{0}, {1}, {2}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}};
const SequoiaTree grow_map = {{{0}, {1}, {0, 0}}};
INSTANTIATE_TEST_SUITE_P(
    All, EngineDistribution,
    ::testing::Values(
        Case{"plain", Plain{}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"plain_coupled", Plain{}, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8", Dyspec{8}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_auto", Dyspec{}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"dyspec_8_coupled", Dyspec{8}, coupled, 1.2, 0, 1.0, 1.0, 0.5},
        Case{"plain_values", Dyspec{6, true}, rejection, 0.8, 0, 1.0, 1.0, 0.5},
        Case{"dyspec_bad_draft", Dyspec{4}, rejection, 1.0, 4, 0.9, 1.2, 1.0},
        Case{"dyspec_6_coupled", Dyspec{6}, coupled, 0.8, 0, 1.0, 1.0, 0.5},
        Case{"dyspec_filters_penalty", Dyspec{6}, rejection, 0.8, 4, 0.9, 1.4, 0.5},
        Case{"threshold", DyspecThreshold{0.1, 12}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"threshold_auto", DyspecThreshold{}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"chain_3", Chain{3}, rejection, 1.0, 0, 0.95, 1.0, 0.3},
        Case{"chain_auto", Chain{}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"chain_coupled", Chain{3}, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"static", shape, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"static_penalty", shape, rejection, 1.0, 5, 0.9, 1.4, 1.0},
        Case{"static_coupled", shape, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"specinfer", SpecInferWidths{{2, 2, 1}}, rejection, 1.0, 0, 1.0, 1.0, 0.5},
        Case{"specinfer_filters", SpecInfer{14}, rejection, 1.0, 4, 0.9, 1.0, 0.3},
        Case{"specinfer_coupled", SpecInferWidths{{3, 1, 2}}, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"sequoia", Sequoia{24, 0, {}}, rejection, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"sequoia_map", grow_map, rejection, 0.8, 0, 1.0, 1.2, 0.5},
        Case{"sequoia_coupled", Sequoia{24, 0, {}}, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"expand_rerank", ExpandRerank{5}, coupled, 1.0, 0, 1.0, 1.0, 0.3},
        Case{"expand_rerank_filters", ExpandRerank{8}, coupled, 0.8, 4, 0.9, 1.3, 0.6}),
    [](const auto& one) { return std::string(one.param.name); });

// Bias and penalties of the new text's tokens, on trees and without.
TEST(EngineDistribution, TermsOfTokensMatchTheTargetsLaw) {
  const TinyPair pair(law_shape(5), 0.5);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 0.9;
  options.sampling.repetition_penalty = 1.2;
  options.sampling.presence_penalty = 0.5;
  options.sampling.frequency_penalty = -1.1;
  options.logit_bias = {{4, 1.2}, {0, -1.5}};
  for (const Acceptance acceptance : {rejection, coupled}) {
    for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{8}, Chain{3}}) {
      options.acceptance = acceptance;
      options.speculation = speculation;
      const Fit fit = fit_of_three(engine, pair.path() / "target", options);
      std::cout << "[ terms, " << name_of(speculation) << " " << name_of(acceptance) << " ] "
                << fit.text() << "\n";
      EXPECT_TRUE(fit.fits) << fit.text();
    }
  }
  // The comparison tells such laws apart.
  const auto differs = [&](const std::function<void(GenerateOptions&)>& change) {
    GenerateOptions other = options;
    change(other);
    const auto law = exact_law(pair.path() / "target", options),
               changed = exact_law(pair.path() / "target", other);
    double distance = 0.0;
    for (std::size_t i = 0; i < law.size(); ++i) distance += std::abs(law[i] - changed[i]) / 2.0;
    return distance;
  };
  EXPECT_GT(differs([](GenerateOptions& o) { o.logit_bias.pop_back(); }), 0.05);
  EXPECT_GT(differs([](GenerateOptions& o) { o.sampling.presence_penalty = 0.0; }), 0.05);
  EXPECT_GT(differs([](GenerateOptions& o) { o.sampling.frequency_penalty = 0.0; }), 0.05);
}

// Texts whose first token came with the prompt.
Fit fit_of_fresh(Engine& engine, const TinyPair& pair, const GenerateOptions& options,
                 const std::string& what, int draws = usual_draws) {
  const Fit fit = fit_of_three(engine, pair.path() / "target", options, nullptr, draws, true);
  std::cout << "[ fresh prompts, " << what << " ] " << fit.text() << "\n";
  return fit;
}

TEST(EngineDistribution, FreshPromptsMatchTheTargetsLaw) {
  const TinyPair pair(law_shape(5), 0.3);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  for (const Acceptance acceptance : {rejection, coupled}) {
    for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{8}}) {
      options.acceptance = acceptance;
      options.speculation = speculation;
      const Fit fit =
          fit_of_fresh(engine, pair, options, cat(name_of(speculation), " ", name_of(acceptance)));
      EXPECT_TRUE(fit.fits) << fit.text();
    }
  }
}

// What the check must notice of that pass.
TEST(EngineDistributionPlanted, FaultsOfFreshPromptsAreCaught) {
  const TinyPair pair(law_shape(5), 0.3);
  Engine engine = Engine::load(pair.options());
  TargetRunner& target = *inside(engine).target_runner;
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.acceptance = coupled;
  options.speculation = Dyspec{8};
  target.change_passes(faulty_passes(PassFault::logits_by_batch));
  EXPECT_FALSE(fit_of_fresh(engine, pair, options, "logits of the prompt's first row").fits);
  target.change_passes(faulty_passes(PassFault::prefill_rows_hidden));
  // Quick builds, too, draw often enough to be sure of this one.
  EXPECT_FALSE(fit_of_fresh(engine, pair, options, "the root does not see the prompt", 12000).fits);
  target.change_passes({});
}

// The same check must notice these.
TEST(EngineDistributionPlanted, FaultsAreCaught) {
  const TinyPair pair(law_shape(5), 0.6);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.speculation = Dyspec{8};
  options.sampling.temperature = 1.0;
  const auto expect_caught = [&](const char* name) {
    const Fit result = fit_of_three(engine, pair.path() / "target", options);
    std::cout << "[ planted: " << name << " ] " << result.text() << "\n";
    EXPECT_FALSE(result.fits) << name << " was not noticed: " << result.text();
  };
  if (on_cuda()) {
    inside(engine).sampler->plant(DeviceFault::residual_is_target);
    expect_caught("bonus from the target where children failed");
    inside(engine).sampler->plant(DeviceFault::none);
  } else {
    inside(engine).other_verifier = [] {
      return make_faulty_rejection_verifier(JudgingFault::declared_is_not_sampled);
    };
    expect_caught("declared distribution is not the sampled one");
    inside(engine).other_verifier = nullptr;
  }
  inside(engine).draft_runner->plant(DrawingFault::declared_is_not_sampled);
  expect_caught("children from a narrower distribution");
  inside(engine).draft_runner->plant(DrawingFault::none);
  EXPECT_TRUE(fit_of_three(engine, pair.path() / "target", options).fits)
      << "without faults it must fit";
}

TEST(EngineDistributionPlanted, RopeByIndexBreaksTheLaw) {
  if (!on_cuda()) GTEST_SKIP() << "seen in the log-probabilities, below";
  // One layer of random weights hardly looks at positions; this one does.
  const TinyPair pair(law_shape(11), 0.6);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.speculation = Dyspec{8};
  options.sampling.temperature = 1.0;
  for (const PassFault fault : {PassFault::none, PassFault::rope_by_index}) {
    inside(engine).target_runner->change_passes(faulty_passes(fault));
    const Fit result = fit_of_three(engine, pair.path() / "target", options);
    std::cout << result.text() << "\n";
    EXPECT_EQ(result.fits, fault == PassFault::none) << result.text();
  }
}

// On the CPU what a tree's rows say is compared with what one token a pass says.
TEST(EngineDistributionPlanted, RopeByIndexIsSeenInTheLogProbabilities) {
  if (on_cuda()) GTEST_SKIP() << "bf16 hides it: the law is sampled above";
  const TinyPair pair;
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.acceptance = coupled;
  options.speculation = Dyspec{8};
  options.max_new_tokens = 40;
  options.ignore_eos = true;
  options.logprobs = true;
  const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
  const auto largest_difference = [&] {
    double largest = 0.0;
    options.speculation = Plain{};
    const Generation plain = engine.generate(prompt, options);
    options.speculation = Dyspec{8};
    const Generation fast = engine.generate(prompt, options);
    EXPECT_EQ(plain.tokens.size(), 40u);
    for (std::size_t i = 0; i < 40 && plain.tokens[i] == fast.tokens[i]; ++i) {
      largest = std::max(largest, std::abs(plain.logprobs[i].logprob - fast.logprobs[i].logprob));
    }
    return largest;
  };
  constexpr double rounding = 1e-4;  // exact_logits.h
  EXPECT_LT(largest_difference(), rounding);
  inside(engine).target_runner->change_passes(faulty_passes(PassFault::rope_by_index));
  EXPECT_GT(largest_difference(), 10.0 * rounding);
  inside(engine).target_runner->change_passes({});
}

}  // namespace
}  // namespace coppice::testing
