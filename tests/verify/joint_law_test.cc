// What two texts write whose trees grow in common rounds: each has its own target's law, and the
// joint law is the product. Computed over every outcome of both texts' random decisions, as
// losslessness_test.cc does for one, which also says what the tolerance stands on; here a path has
// twice as many decisions. Faults are planted that must be noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drafting/specinfer.h"
#include "reference/exact_law.h"
#include "verify/rejection-inl.h"

namespace coppice::joint_law_test {
namespace {

using testing::compare_exactly;
using testing::EnumeratedDecisions;
using testing::Enumeration;
using testing::ExactPair;
using testing::TokenPath;
using Drawer = BasicChildDrawer<EnumeratedDecisions>;

constexpr double tolerance = 1e-12;

enum class Fault {
  none,
  one_stream,         ///< both texts have the same stream of noise
  neighbours_target,  ///< the first text is judged by the second's target
  neighbours_draft,   ///< and here by what the second's children were drawn from
  verdict_walks_on,   ///< a root without an accepted child is followed by the next tree's
};

struct JointError {
  double of_text = 0.0;       ///< the larger of both texts' errors
  double independence = 0.0;  ///< largest difference of a joint probability from the product
  double total = 0.0;
  std::int64_t paths = 0;
  bool address_shared = false;
};

struct OneText {
  ExactPair& pair;
  DraftPolicy& policy;
  std::int32_t size;
};

// One step of each text.
JointError joint_error(OneText first, OneText second, Fault fault = Fault::none) {
  const OneText texts[2] = {first, second};
  Enumeration enumeration;
  const EnumeratedDecisions decide(enumeration);
  RejectionRule<EnumeratedDecisions> rule(decide);
  const TokenPath nothing;
  const auto vocab_of = [&](std::size_t t) {
    return static_cast<std::int64_t>(texts[t].pair.target.vocab());
  };
  NoiseCache noise(vocab_of(0));  // sampled children take none
  Drawer drawers[2] = {Drawer(vocab_of(0), noise, decide, 0),
                       Drawer(vocab_of(1), noise, decide, 0)};
  testing::DraftAfter<Drawer> drafts[2] = {{texts[0].pair.draft, drawers[0], nothing},
                                           {texts[1].pair.draft, drawers[1], nothing}};
  class BothDrafts final : public DraftPasses {
   public:
    explicit BothDrafts(testing::DraftAfter<Drawer>* drafts) : drafts_(drafts) {}
    void evaluate(std::span<const GrowingText> growing) override {
      for (std::size_t t = 0; t < growing.size(); ++t) {
        drafts_[t].evaluate(growing[t].policy.growth().arena, growing[t].wanted());
      }
    }

   private:
    testing::DraftAfter<Drawer>* drafts_;
  } passes(drafts);

  std::map<std::pair<TokenPath, TokenPath>, long double> joint;
  long double total = 0.0;
  TokenTree trees[2];
  Verdict verdicts[2];
  enumeration.each([&] {
    StepKey keys[2] = {{1, 2, 0, 2}, {1, fault == Fault::one_stream ? 2u : 3u, 0, 2}};
    std::vector<GrowingText> growing;
    for (std::size_t t = 0; t < 2; ++t) {
      trees[t].reset(0);
      drawers[t].begin(keys[t], ChildDraw::sampled);
      GrowthLimits limits;
      limits.max_size = texts[t].size;
      growing.push_back({texts[t].policy, drafts[t], limits, trees[t], nullptr});
    }
    grow_trees(growing, passes);
    TokenPath written[2];
    for (std::size_t t = 2; t-- > 0;) {  // the second first: the first may be led on by it
      ASSERT_FALSE(growing[t].failure);
      const std::size_t judge = fault == Fault::neighbours_target ? 1 : t;
      const std::size_t drawn = fault == Fault::neighbours_draft ? 1 : t;
      testing::TargetAfter target(texts[judge].pair.target, trees[t], nothing);
      rule.judge(trees[t], target, drawers[drawn].distributions(), keys[t], verdicts[t]);
      for (const std::int32_t node : verdicts[t].path) {
        written[t].push_back(trees[t].token[static_cast<std::size_t>(node)]);
      }
      written[t].push_back(verdicts[t].bonus);
    }
    if (fault == Fault::verdict_walks_on && verdicts[0].path.empty()) written[0] = written[1];
    const auto probability = static_cast<long double>(enumeration.probability());
    joint[{written[0], written[1]}] += probability;
    total += probability;
  });

  std::map<TokenPath, double> laws[2];
  for (const auto& [both, probability] : joint) {
    laws[0][both.first] += static_cast<double>(probability);
    laws[1][both.second] += static_cast<double>(probability);
  }
  JointError error;
  for (std::size_t t = 0; t < 2; ++t) {
    error.of_text = std::max(error.of_text, compare_exactly(laws[t], texts[t].pair.target).largest);
  }
  for (const auto& [a, of_a] : laws[0]) {
    for (const auto& [b, of_b] : laws[1]) {
      const auto both = joint.find({a, b});
      const double found = both == joint.end() ? 0.0 : static_cast<double>(both->second);
      error.independence = std::max(error.independence, std::abs(found - of_a * of_b));
    }
  }
  error.total = static_cast<double>(total);
  error.paths = enumeration.paths();
  error.address_shared = enumeration.address_shared();
  return error;
}

// Policies that take one round, several, or as many as the tokens drawn decide.
struct Grown {
  std::string name;
  std::unique_ptr<DraftPolicy> policy;
  std::int32_t size;
};

std::vector<Grown> growths() {
  std::vector<Grown> all;
  all.push_back({"dyspec 2", make_dyspec_policy(), 2});
  all.push_back({"chain 2", make_chain_policy(), 2});
  all.push_back({"two siblings", make_specinfer_policy({2}), 2});
  all.push_back({"plain", make_dyspec_policy(), 0});
  return all;
}

// The small ones, of exact pairs under two sets of parameters.
std::vector<ExactPair> small_pairs(const SamplingParams& params) {
  std::vector<ExactPair> small;
  for (ExactPair& pair : testing::exact_pairs(params, params)) {
    if (pair.target.vocab() <= 4) small.push_back(std::move(pair));
  }
  return small;
}

TEST(JointLaw, IsTheProductOfTheTargets) {
  auto cold = small_pairs({0.6}), warm = small_pairs({1.3});
  auto a = growths(), b = growths();
  ASSERT_EQ(cold.size(), warm.size());
  std::int64_t paths = 0;
  double worst = 0.0;
  for (std::size_t p = 0; p < cold.size(); ++p) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        ExactPair& other = warm[(p + i + j) % warm.size()];
        const JointError error =
            joint_error({cold[p], *a[i].policy, a[i].size}, {other, *b[j].policy, b[j].size});
        SCOPED_TRACE(cold[p].name + ", " + a[i].name + " beside " + other.name + ", " + b[j].name);
        EXPECT_LE(error.of_text, tolerance);
        EXPECT_LE(error.independence, tolerance);
        EXPECT_NEAR(error.total, 1.0, tolerance);
        EXPECT_FALSE(error.address_shared);
        worst = std::max({worst, error.of_text, error.independence});
        paths += error.paths;
      }
    }
  }
  std::cout << cold.size() << " pairs, " << paths << " paths, off by at most " << worst << "\n";
}

TEST(JointLaw, FaultsAreNoticed) {
  constexpr double far_off = 1e-6;
  auto cold = small_pairs({0.6}), warm = small_pairs({1.3});
  auto a = growths(), b = growths();
  const auto largest = [&](Fault fault, const auto& part) {
    double found = 0.0;
    for (std::size_t p = 0; p < cold.size(); ++p) {
      // The same pair twice: only parameters and noise tell the texts apart.
      found = std::max(
          found, part(joint_error({cold[p], *a[0].policy, 2}, {warm[p], *b[1].policy, 2}, fault)));
    }
    return found;
  };
  const auto of_text = [](const JointError& error) { return error.of_text; };
  const auto independence = [](const JointError& error) { return error.independence; };
  EXPECT_GT(largest(Fault::one_stream, independence), far_off);
  EXPECT_GT(largest(Fault::neighbours_target, of_text), far_off);
  EXPECT_GT(largest(Fault::neighbours_draft, of_text), far_off);
  EXPECT_GT(largest(Fault::verdict_walks_on, of_text), far_off);
  EXPECT_GT(largest(Fault::verdict_walks_on, independence), far_off);
  EXPECT_TRUE(joint_error({cold[0], *a[0].policy, 2}, {warm[0], *b[1].policy, 2}, Fault::one_stream)
                  .address_shared);
}

}  // namespace
}  // namespace coppice::joint_law_test
