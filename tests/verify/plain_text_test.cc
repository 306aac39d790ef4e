// Under coupled acceptance the same seed gives the same text, whatever is drafted, and at
// temperature 0 the same text comes always: speculation repeats plain decoding token for token. So
// a coupled text has the law of plain sampling by Gumbel noise, which is sampled here, once, with
// trees.
//
// A correct build fails the comparisons of laws with probability under 1e-7 over other seeds than
// the fixed ones (fewer than 20 at significance 1e-9 for each of two statistics).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/expand_rerank.h"
#include "drafting/growth_economics.h"
#include "drafting/sequoia.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "kernels/logits.h"
#include "reference/statistics.h"
#include "reference/tabular_model.h"
#include "reference/wrapped_policy.h"
#include "verify/follow.h"

namespace coppice::plain_text_test {
namespace {

using testing::Fit;
using testing::fixed;
using testing::ModelPair;
using testing::Setting;
using testing::TabularGenerator;

// Checks every tree it grows.
class ValidatingPolicy final : public testing::WrappedPolicy {
 public:
  ValidatingPolicy(std::unique_ptr<DraftPolicy> policy, std::int32_t vocab)
      : WrappedPolicy(std::move(policy)), vocab_(vocab) {}
  void finish(TokenTree& tree) override {
    WrappedPolicy::finish(tree);
    tree.validate(vocab_);
  }

 private:
  std::int32_t vocab_;
};

// Judges as `rule` does and teaches the calibration, as the engine does after every step.
class TeachingVerifier final : public Verifier {
 public:
  TeachingVerifier(Verifier& rule, AcceptanceCalibration& calibration)
      : rule_(rule), calibration_(calibration) {}
  std::string name() const override { return rule_.name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    rule_.judge(tree, target, draft, key, verdict);
    calibration_.record(tree, verdict.path);
  }

 private:
  Verifier& rule_;
  AcceptanceCalibration& calibration_;
};

// Prices under which trees of a few nodes pay, and none of more than nine.
class FixedPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.05; }
  double pass_cost(std::int32_t rows, std::int32_t) const override { return 0.05 + 0.01 * rows; }
  double verify_cost(std::int32_t size) const override { return 0.05 * size + 0.005 * size * size; }
};

// A policy under one way of drawing; it may look at what a text has taught.
struct Grown {
  std::string name;
  std::function<std::unique_ptr<DraftPolicy>(const AcceptanceCalibration&, AcceptanceRule)> make;
  testing::LimitsRule limits;
};

std::vector<Grown> growths() {
  static const FixedPrices prices;
  std::vector<Grown> all;
  const auto add = [&](const std::string& name, auto make, testing::LimitsRule limits) {
    all.push_back({name,
                   [make](const AcceptanceCalibration& learned, AcceptanceRule draw) {
                     return std::unique_ptr<DraftPolicy>(make(learned, draw));
                   },
                   std::move(limits)});
  };
  using Learned = const AcceptanceCalibration&;
  const auto dyspec = [](Learned, AcceptanceRule) { return make_dyspec_policy(); };
  add("dyspec 9", dyspec, fixed(9));
  add("dyspec 6, depth 2", dyspec, fixed(6, 2));
  add("threshold 0.05", dyspec, fixed(12, 9, 0.05));
  add(
      "chain 3", [](Learned, AcceptanceRule) { return make_chain_policy(); }, fixed(3));
  add(
      "specinfer <2,2>",
      [](Learned, AcceptanceRule) {
        return make_specinfer_policy({2, 2});
      },
      fixed(99));
  add(
      "static 7",
      [](Learned, AcceptanceRule) {
        return make_static_policy(
            TreeShape(std::vector<RankPath>{{0}, {1}, {0, 0}, {0, 1}, {2}, {1, 0}, {0, 0, 0}}));
      },
      fixed(64));
  add(
      "sequoia 9",
      [](Learned, AcceptanceRule) {
        return make_sequoia_policy(plan_sequoia(std::vector<double>{0.25, 0.4, 0.2}, {9, 3, 3}));
      },
      fixed(64));
  add(
      "calibrated 7",
      [](Learned learned, AcceptanceRule draw) {
        return make_dyspec_policy({&learned, nullptr, draw != AcceptanceRule::rejection});
      },
      fixed(7));
  add(
      "dyspec auto, looking at children if it may",
      [](Learned learned, AcceptanceRule draw) {
        return make_dyspec_policy({&learned, &prices, draw != AcceptanceRule::rejection});
      },
      fixed(12));
  for (const std::int32_t size : {4, 12}) {
    add(
        "expand-rerank " + std::to_string(size),
        [](Learned, AcceptanceRule draw) -> std::unique_ptr<DraftPolicy> {
          if (draw == AcceptanceRule::rejection) return make_chain_policy();  // it refuses those
          return make_expand_rerank_policy({3, 4}, draw);
        },
        fixed(size));
  }
  add("dyspec, adaptive", dyspec, [](std::int32_t step, std::int32_t last_accepted) {
    GrowthLimits limits;
    limits.max_size = step == 0 ? 4 : 1 + 3 * last_accepted;
    limits.max_depth = 2 + last_accepted;
    limits.min_value = last_accepted == 0 ? 0.15 : 0.05;
    return limits;
  });
  return all;
}

TEST(PlainText, IsRepeatedTokenForToken) {
  constexpr std::int32_t length = 40;
  const auto none = make_chain_policy();
  std::int64_t tokens = 0;
  for (const ModelPair& pair : testing::model_pairs()) {
    for (const bool greedy : {false, true}) {
      const auto rule_for = [&](TabularGenerator& generator) {
        return greedy ? make_greedy_verifier() : make_coupled_verifier(generator.noise());
      };
      Setting plain;
      plain.target_params = {greedy ? 0.0 : 0.8};
      plain.draft_params = {0.8};
      plain.limits = fixed(0);
      TabularGenerator reference(pair, plain);
      const auto plain_rule = rule_for(reference);
      std::vector<std::vector<TokenId>> expected;
      for (std::uint64_t sequence = 0; sequence < 6; ++sequence) {
        expected.push_back(reference.generate(*none, *plain_rule, 5, sequence, length));
      }
      for (const Grown& grown : growths()) {
        for (const AcceptanceRule draw :
             {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
          Setting setting = plain;
          setting.limits = grown.limits;
          setting.draw = draw;
          // Any tree is exact here, another draft temperature and filters included.
          if (draw == AcceptanceRule::greedy) setting.draft_params = {1.7, 3};
          TabularGenerator generator(pair, setting);
          const auto rule = rule_for(generator);
          AcceptanceCalibration calibration;
          TeachingVerifier teaching(*rule, calibration);
          ValidatingPolicy policy(grown.make(calibration, draw), pair.target.vocab);
          for (std::uint64_t sequence = 0; sequence < expected.size(); ++sequence) {
            ASSERT_EQ(generator.generate(policy, teaching, 5, sequence, length), expected[sequence])
                << pair.name << ", " << grown.name;
            tokens += length;
          }
        }
      }
    }
  }
  std::cout << tokens << " tokens identical to plain generation\n";
}

// How many pairs' coupled texts misfit the target's law under this rule.
template <typename MakeRule>
int misfits(std::int64_t texts, const MakeRule& make_rule) {
  const auto policy = make_dyspec_policy();
  std::uint64_t seed = 3000;
  int found = 0;
  for (const ModelPair& pair : testing::model_pairs()) {
    Setting setting;
    setting.target_params = setting.draft_params = {0.9};
    setting.limits = fixed(5);
    setting.draw = AcceptanceRule::coupled;
    TabularGenerator generator(pair, setting);
    const std::unique_ptr<Verifier> rule = make_rule(generator);
    const Fit fit = testing::compare(generator.count_threes(*policy, *rule, ++seed, texts),
                                     testing::law_of_three(pair.target, setting.target_params));
    if (fit.fits) continue;
    std::cout << pair.name << ": " << fit.text() << "\n";
    ++found;
  }
  return found;
}

TEST(CoupledLaw, IsTheTargets) {
  EXPECT_EQ(misfits(10000, [](auto& of) { return make_coupled_verifier(of.noise()); }), 0);
}

// The rule with one fault: all positions of a step share the noise of the first.
class OneNoiseVerifier final : public Verifier {
 public:
  explicit OneNoiseVerifier(NoiseCache& noise) : noise_(noise) {}
  std::string name() const override { return "coupled, one noise for all positions of a step"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable&,
             const StepKey& key, Verdict& verdict) override {
    follow(
        tree,
        [&](std::int32_t node) {
          return argmax_product(target.distribution(node),
                                noise_.row(key.seed, key.sequence, key.noise_position(0)));
        },
        verdict);
  }

 private:
  NoiseCache& noise_;
};

TEST(CoupledLaw, OneNoiseForAllPositionsIsCaught) {
  EXPECT_GT(misfits(5000, [](auto& of) { return std::make_unique<OneNoiseVerifier>(of.noise()); }),
            0);
}

}  // namespace
}  // namespace coppice::plain_text_test
