// What two texts write whose trees grow in common rounds: each has its own target's law, and the
// joint law is the product. Computed over every outcome of both texts' random decisions, as
// losslessness_test.cc does for one, which also says what the tolerance stands on; here a path has
// twice as many decisions. Faults are planted that must be noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drafting/batch_growth.h"
#include "drafting/calibration.h"
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
  one_stream,          ///< both texts have the same stream of noise
  neighbours_target,   ///< the first text is judged by the second's target
  neighbours_draft,    ///< and here by what the second's children were drawn from
  verdict_walks_on,    ///< a root without an accepted child is followed by the next tree's
  dropped_at_the_cut,  ///< of all drawn nodes only those most sure by their tokens are kept
};

struct JointError {
  double of_text = 0.0;  ///< the larger of both texts' errors
  /// Over both texts' first two tokens, the largest difference of a probability from the product.
  double independence = 0.0;
  double total = 0.0;
  std::int64_t paths = 0;
  bool address_shared = false;
  std::pair<std::int32_t, std::int32_t> nodes[2] = {{99, 0}, {99, 0}};  ///< fewest, most
};

struct OneText {
  ExactPair& pair;
  DraftPolicy& policy;
  std::int32_t size;
};

// Where texts grow together: with so many nodes in all, what the first text's tokens are worth, and
// how finely growth sees the numbers that will judge.
struct Together {
  BatchGrowth& growth;
  std::int32_t most;
  double weight;
  std::int32_t cells;
};

// Keeps as many nodes of both trees as fit, the likeliest first: by their tokens, which have been
// seen.
void cut(TokenTree (&trees)[2], std::int32_t most) {
  std::vector<double> probs;
  for (const TokenTree& tree : trees) {
    probs.insert(probs.end(), tree.path_prob.begin() + 1, tree.path_prob.end());
  }
  const auto kept = std::min(probs.size(), static_cast<std::size_t>(most) - 1);
  std::sort(probs.begin(), probs.end(), std::greater<>());
  for (TokenTree& tree : trees) {
    std::vector<std::int32_t> nodes;
    for (std::int32_t node = 1; node < tree.nodes(); ++node) {
      const double prob = tree.path_prob[static_cast<std::size_t>(node)];
      const std::int32_t parent = tree.parent[static_cast<std::size_t>(node)];
      const bool has_parent =
          parent == 0 || std::find(nodes.begin(), nodes.end(), parent) != nodes.end();
      if (has_parent && kept > 0 && prob >= probs[kept - 1]) nodes.push_back(node);
    }
    const TokenTree all = tree;
    tree.assign_part(all, nodes);
  }
}

// The first two tokens of a text that begins so and goes on by the target, with probabilities.
std::map<TokenPath, double> begins(const TokenPath& written, testing::PathRows& target) {
  constexpr std::size_t length = 2;
  std::map<TokenPath, double> all = {
      {TokenPath(written.begin(), written.begin() + std::min(written.size(), length)), 1.0}};
  while (all.begin()->first.size() < length) {
    std::map<TokenPath, double> longer;
    for (const auto& [path, probability] : all) {
      const std::vector<float>& row = target.after(path);
      for (std::size_t token = 0; token < row.size(); ++token) {
        TokenPath next = path;
        next.push_back(static_cast<TokenId>(token));
        longer[next] = probability * static_cast<double>(row[token]);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// One step of each text.
JointError joint_error(OneText first, OneText second, Fault fault = Fault::none,
                       const Together* together = nullptr) {
  const OneText texts[2] = {first, second};
  Enumeration enumeration;
  const EnumeratedDecisions decide(enumeration);
  RejectionVerifier<EnumeratedDecisions> rule(decide);
  const TokenPath nothing;
  const auto vocab_of = [&](std::size_t t) {
    return static_cast<std::int64_t>(texts[t].pair.target.vocab());
  };
  NoiseCache noise(vocab_of(0));  // sampled children take none
  const std::int32_t cells = together == nullptr ? 0 : together->cells;
  Drawer drawers[2] = {Drawer(vocab_of(0), noise, decide, cells),
                       Drawer(vocab_of(1), noise, decide, cells)};
  testing::DraftAfter<Drawer> drafts[2] = {{texts[0].pair.draft, drawers[0], nothing},
                                           {texts[1].pair.draft, drawers[1], nothing}};
  class BothDrafts final : public DraftPasses {
   public:
    explicit BothDrafts(testing::DraftAfter<Drawer>* drafts) : drafts_(drafts) {}
    void evaluate(std::span<const GrowingText> growing) override {
      for (std::size_t t = 0; t < growing.size(); ++t) {
        drafts_[t].evaluate(growing[t].policy.growth().candidates, growing[t].frontier());
      }
    }

   private:
    testing::DraftAfter<Drawer>* drafts_;
  } passes(drafts);

  JointError error;
  std::map<std::pair<TokenPath, TokenPath>, long double> joint;
  long double total = 0.0;
  TokenTree trees[2];
  Verdict verdicts[2];
  enumeration.each([&] {
    StepKey keys[2] = {{1, 2, 0, 2}, {1, fault == Fault::one_stream ? 2u : 3u, 0, 2}};
    std::vector<GrowingText> growing;
    if (together != nullptr) together->growth.begin(together->most);
    for (std::size_t t = 0; t < 2; ++t) {
      trees[t].reset(0);
      drawers[t].begin(keys[t], AcceptanceRule::rejection);
      GrowthLimits limits;
      limits.max_size = texts[t].size;
      if (together != nullptr) {
        limits.common = &together->growth;
        limits.weight = t == 0 ? together->weight : 1.0;
      }
      growing.push_back({texts[t].policy, drafts[t], limits, trees[t], nullptr});
    }
    grow_trees(growing, passes, together == nullptr ? nullptr : &together->growth);
    if (fault == Fault::dropped_at_the_cut) cut(trees, together->most);
    for (std::size_t t = 0; t < 2; ++t) {
      error.nodes[t].first = std::min(error.nodes[t].first, trees[t].size());
      error.nodes[t].second = std::max(error.nodes[t].second, trees[t].size());
    }
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
  for (std::size_t t = 0; t < 2; ++t) {
    error.of_text = std::max(error.of_text, compare_exactly(laws[t], texts[t].pair.target).largest);
  }
  // Lengths may hang on the other text: let every text be finished by its target.
  std::map<std::pair<TokenPath, TokenPath>, double> finished;
  for (const auto& [both, probability] : joint) {
    for (const auto& [a, of_a] : begins(both.first, texts[0].pair.target)) {
      for (const auto& [b, of_b] : begins(both.second, texts[1].pair.target)) {
        finished[{a, b}] += static_cast<double>(probability) * of_a * of_b;
      }
    }
  }
  for (const auto& [a, of_a] : begins({}, texts[0].pair.target)) {
    for (const auto& [b, of_b] : begins({}, texts[1].pair.target)) {
      error.independence = std::max(error.independence, std::abs(finished[{a, b}] - of_a * of_b));
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

// Prices of both texts' nodes together, by which one's tokens decide whether the other's are drawn.
class CommonPrices final : public GrowthEconomics {
 public:
  double least_node_cost(std::int32_t) const override { return 0.1; }
  double pass_cost(std::int32_t rows, std::int32_t) const override { return 0.03 + 0.01 * rows; }
  double verify_cost(std::int32_t size) const override { return 0.1 * size + 0.05 * (size / 3); }
};

// A child whose number is below 0.5 is accepted, so that trees hang on the numbers that growth
// sees.
AcceptanceCalibration heeding_numbers() {
  AcceptanceCalibration calibration;
  for (int i = 0; i < 400; ++i) {
    const double share = 0.05 + 0.1 * (i % 10), u = i / 40 % 2 == 0 ? 0.25 : 0.75;
    calibration.observe(i / 10 % 2, 1 + i / 20 % 2, share, u < 0.5, u);
  }
  calibration.update();
  return calibration;
}

// One that is nearly always right where the draft is sure.
AcceptanceCalibration heeding_shares() {
  AcceptanceCalibration calibration;
  for (int i = 0; i < 400; ++i) {
    const double share = 0.05 + 0.1 * (i % 10);
    calibration.observe(i / 10 % 2, 1 + i / 20 % 2, share, share > 0.5);
  }
  calibration.update();
  return calibration;
}

struct CommonCase {
  const CommonPrices prices;
  BatchGrowth growth{prices};
  const AcceptanceCalibration by_number = heeding_numbers(), by_share = heeding_shares();
  const std::unique_ptr<DraftPolicy> tree = make_dyspec_policy({&by_number, &prices}),
                                     other = make_dyspec_policy({&by_number, &prices}),
                                     by_shares = make_dyspec_policy({&by_share, &prices}),
                                     chain = make_chain_policy({&by_number, &prices});
};

// src/sizing/README.md has the proof.
TEST(BatchGrowthLaw, IsTheProductOfTheTargets) {
  CommonCase common;
  auto cold = small_pairs({0.6}), warm = small_pairs({1.3});
  std::int64_t paths = 0;
  double worst = 0.0;
  int moved = 0;
  for (std::size_t p = 0; p < cold.size(); ++p) {
    ExactPair& other = warm[(p + 1) % warm.size()];
    for (const auto& second : {common.other.get(), common.by_shares.get(), common.chain.get()}) {
      for (const std::int32_t most : {3, 4, 5}) {
        for (const std::int32_t cells : {0, 2}) {
          if (cells > 0 && (most > 4 || cold[p].target.vocab() > 3)) continue;  // too many paths
          const Together together{common.growth, most, most == 4 ? 1.3 : 1.0, cells};
          const JointError error =
              joint_error({cold[p], *common.tree, 3}, {other, *second, 3}, Fault::none, &together);
          SCOPED_TRACE(cold[p].name + " beside " + other.name + ", " + second->name() + ", " +
                       std::to_string(most) + " nodes, cells " + std::to_string(cells));
          EXPECT_LE(error.of_text, tolerance);
          EXPECT_LE(error.independence, tolerance);
          EXPECT_NEAR(error.total, 1.0, tolerance);
          EXPECT_FALSE(error.address_shared);
          for (const auto& [fewest, largest] : error.nodes) moved += fewest < largest;
          worst = std::max({worst, error.of_text, error.independence});
          paths += error.paths;
        }
      }
    }
  }
  EXPECT_GE(moved, 20) << "sizes hang on tokens";
  std::cout << paths << " paths, off by at most " << worst << "\n";
}

TEST(BatchGrowthLaw, FaultsAreNoticed) {
  CommonCase common;
  auto cold = small_pairs({0.6}), warm = small_pairs({1.3});
  for (const Fault fault : {Fault::one_stream, Fault::dropped_at_the_cut}) {
    double found = 0.0;
    for (std::size_t p = 0; p < cold.size(); ++p) {
      for (const std::int32_t most : {3, 4, 5}) {
        for (const double weight : {1.3, 2.5}) {
          const Together together{common.growth, most, weight, 2};
          if (cold[p].target.vocab() > 3) continue;
          const JointError error = joint_error({cold[p], *common.tree, 3},
                                               {warm[p], *common.other, 3}, fault, &together);
          found = std::max(found, error.of_text);
        }
      }
    }
    EXPECT_GT(found, 1e-6) << (fault == Fault::one_stream ? "twins in the common heap"
                                                          : "a token that was seen is dropped");
    std::cout << "off by " << found << "\n";
  }
}

}  // namespace
}  // namespace coppice::joint_law_test
