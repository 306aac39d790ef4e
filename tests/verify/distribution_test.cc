// What speculation writes is distributed as what the target alone would write: the law of the
// first three tokens, for every policy and acceptance rule.
//
// A correct build fails one of the comparisons below with probability under 1e-6 over other
// seeds than the fixed ones (fewer than 500 comparisons at significance 1e-9 for each of the two
// statistics of reference/statistics.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "drafting/sequoia.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "kernels/logits.h"
#include "reference/statistics.h"
#include "reference/tabular_model.h"
#include "verify/planted_faults.h"

namespace coppice {
namespace {

using testing::Fit;
using testing::fixed;
using testing::ModelPair;
using testing::Setting;
using testing::TabularGenerator;

constexpr std::int64_t texts = 40000;

struct Grown {
  std::string name;
  std::unique_ptr<DraftPolicy> policy;
  testing::LimitsRule limits;
};

std::vector<Grown> growths() {
  std::vector<Grown> all;
  for (const std::int32_t size : {0, 1, 2, 5, 9}) {
    all.push_back({"dyspec " + std::to_string(size), make_dyspec_policy(), fixed(size)});
  }
  all.push_back({"dyspec 6, depth 2", make_dyspec_policy(), fixed(6, 2)});
  all.push_back({"dyspec 6, value 0.2", make_dyspec_policy(), fixed(6, 9, 0.2)});
  all.push_back({"threshold 0.3", make_dyspec_threshold_policy(), fixed(99, 9, 0.3)});
  all.push_back({"threshold 0.05, 4 nodes", make_dyspec_threshold_policy(), fixed(4, 9, 0.05)});
  for (const std::int32_t size : {1, 3}) {
    all.push_back({"chain " + std::to_string(size), make_chain_policy(), fixed(size)});
  }
  all.push_back({"specinfer <2,2>", make_specinfer_policy({2, 2}), fixed(99)});
  all.push_back({"specinfer <1,3,1>, 6 nodes", make_specinfer_policy({1, 3, 1}), fixed(6)});
  // Three children where some drafts have fewer; a map whose first rank is not its best.
  const TreeShape shape(std::vector<RankPath>{{0}, {1}, {0, 0}, {0, 1}, {2}, {1, 0}, {0, 0, 0}});
  const GrowMap map = plan_sequoia(std::vector<double>{0.25, 0.4, 0.2}, {9, 3, 3});
  all.push_back({"static 7", make_static_policy(shape), fixed(64)});
  all.push_back({"static 7, 4 nodes", make_static_policy(shape), fixed(4)});
  all.push_back({"sequoia 9", make_sequoia_policy(map), fixed(64)});
  // Sizes that follow past acceptance, as automatic ones do.
  const auto adaptive = [](std::int32_t step, std::int32_t last_accepted) {
    GrowthLimits limits;
    limits.max_size = step == 0 ? 4 : 1 + 3 * last_accepted;
    limits.max_depth = 2 + last_accepted;
    limits.min_value = last_accepted == 0 ? 0.15 : 0.05;
    return limits;
  };
  all.push_back({"dyspec, adaptive", make_dyspec_policy(), adaptive});
  all.push_back({"threshold, adaptive", make_dyspec_threshold_policy(), adaptive});
  all.push_back({"static 7, adaptive", make_static_policy(shape), adaptive});
  return all;
}

class Summary {
 public:
  void add(const std::string& name, const Fit& fit) {
    ++comparisons_;
    EXPECT_TRUE(fit.fits) << name << ": " << fit.text();
    if (fit.tail < worst_.tail) {
      worst_ = fit;
      worst_name_ = name;
    }
  }
  ~Summary() {
    std::cout << comparisons_ << " comparisons; the worst, " << worst_name_ << ": " << worst_.text()
              << "\n";
  }

 private:
  int comparisons_ = 0;
  Fit worst_;
  std::string worst_name_ = "none";
};

TEST(Distribution, RejectionForEveryPairAndPolicy) {
  const auto rule = make_rejection_rule();
  Summary summary;
  std::uint64_t seed = 100;
  for (const ModelPair& pair : testing::model_pairs()) {
    const std::vector<double> law = testing::law_of_three(pair.target, {1.0});
    for (const Grown& grown : growths()) {
      Setting setting;
      setting.limits = grown.limits;
      TabularGenerator generator(pair, setting);
      const auto counts = generator.count_threes(*grown.policy, *rule, ++seed, texts);
      summary.add(pair.name + ", " + grown.name, testing::compare(counts, law));
    }
  }
}

TEST(Distribution, RejectionUnderTemperatureAndFilters) {
  const auto rule = make_rejection_rule();
  Summary summary;
  std::uint64_t seed = 1000;
  const std::vector<std::pair<SamplingParams, SamplingParams>> settings{
      {{0.6}, {0.6}},
      {{1.5}, {0.7}},
      {{1.0, 2}, {1.0, 2}},
      {{1.0, 3}, {1.0, 2}},
      {{1.0}, {1.0, 2}},
      {{0.8, 0, 0.7}, {0.8, 0, 0.7}},
      {{1.0}, {1.0, 0, 0.5}},
      {{1.0, 0, 1.0, 0.3}, {1.0, 0, 1.0, 0.3}},
      {{1.2, 3, 0.9, 0.05}, {1.2, 3, 0.9, 0.05}}};
  for (const ModelPair& pair : testing::model_pairs()) {
    const bool random = pair.name.rfind("random", 0) == 0 || pair.name == "good draft" ||
                        pair.name == "draft 0 where the target is not";
    if (!random) continue;
    for (const auto& [target_params, draft_params] : settings) {
      Setting setting;
      setting.target_params = target_params;
      setting.draft_params = draft_params;
      setting.limits = fixed(5);
      const std::vector<double> law = testing::law_of_three(pair.target, target_params);
      for (const bool chain : {false, true}) {
        const auto policy = chain ? make_chain_policy() : make_dyspec_policy();
        TabularGenerator generator(pair, setting);
        summary.add(pair.name + ", " + policy->name(),
                    testing::compare(generator.count_threes(*policy, *rule, ++seed, texts), law));
      }
    }
  }
}

TEST(Distribution, LiteralRejection) {
  const auto rule = make_faulty_rejection_rule(JudgingFault::none);
  const auto policy = make_dyspec_policy();
  Summary summary;
  std::uint64_t seed = 2000;
  for (const ModelPair& pair : testing::model_pairs()) {
    Setting setting;
    setting.limits = fixed(5);
    TabularGenerator generator(pair, setting);
    summary.add(pair.name, testing::compare(generator.count_threes(*policy, *rule, ++seed, texts),
                                            testing::law_of_three(pair.target, {1.0})));
  }
}

TEST(Distribution, Coupled) {
  Summary summary;
  std::uint64_t seed = 3000;
  for (const ModelPair& pair : testing::model_pairs()) {
    const std::vector<double> law = testing::law_of_three(pair.target, {0.9});
    for (const Grown& grown : growths()) {
      if (grown.name != "dyspec 5" && grown.name != "chain 3" && grown.name != "threshold 0.3" &&
          grown.name != "specinfer <2,2>" && grown.name != "static 7" &&
          grown.name != "sequoia 9") {
        continue;
      }
      Setting setting;
      setting.target_params = setting.draft_params = {0.9};
      setting.limits = grown.limits;
      setting.draw = ChildDraw::coupled;
      TabularGenerator generator(pair, setting);
      const auto rule = make_coupled_rule(generator.noise());
      const auto counts = generator.count_threes(*grown.policy, *rule, ++seed, texts / 2);
      summary.add(pair.name + ", " + grown.name, testing::compare(counts, law));
    }
  }
}

// The same seed gives the same text under coupled acceptance, whatever is drafted, and at
// temperature 0.
TEST(Distribution, CoupledAndGreedyRepeatThePlainText) {
  std::int64_t tokens = 0;
  for (const ModelPair& pair : testing::model_pairs()) {
    for (const bool greedy : {false, true}) {
      Setting plain;
      plain.target_params = {greedy ? 0.0 : 0.8};
      plain.draft_params = {0.8};
      plain.limits = fixed(0);
      const auto none = make_dyspec_policy();
      TabularGenerator reference(pair, plain);
      const auto rule_for = [&](TabularGenerator& generator) {
        return greedy ? make_greedy_rule() : make_coupled_rule(generator.noise());
      };
      const auto plain_rule = rule_for(reference);
      for (const Grown& grown : growths()) {
        for (const ChildDraw draw : {ChildDraw::sampled, ChildDraw::top, ChildDraw::coupled}) {
          Setting setting = plain;
          setting.limits = grown.limits;
          setting.draw = draw;
          // Any tree is exact here, another draft temperature and filters included.
          if (draw == ChildDraw::top) setting.draft_params = {1.7, 3};
          TabularGenerator generator(pair, setting);
          const auto rule = rule_for(generator);
          for (std::uint64_t sequence = 0; sequence < 6; ++sequence) {
            const auto expected = reference.generate(*none, *plain_rule, 5, sequence, 40);
            ASSERT_EQ(generator.generate(*grown.policy, *rule, 5, sequence, 40), expected)
                << pair.name << ", " << grown.name;
            tokens += 40;
          }
        }
      }
    }
  }
  std::cout << tokens << " tokens identical to plain generation\n";
}

}  // namespace
}  // namespace coppice
