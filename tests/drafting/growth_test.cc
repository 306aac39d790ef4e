#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/child_drawer.h"
#include "drafting/grow.h"
#include "drafting/growth_economics.h"
#include "reference/naive_dyspec.h"
#include "reference/sanitized.h"

namespace coppice {
namespace {

using testing::DraftByPath;
using testing::NaiveTree;
using testing::NaiveValues;

enum class Shape { flat, peaked, one_hot, dyadic, uniform, mixed };
constexpr Shape all_shapes[] = {Shape::flat,   Shape::peaked,  Shape::one_hot,
                                Shape::dyadic, Shape::uniform, Shape::mixed};

std::uint64_t hash_of(std::uint64_t seed, const std::vector<TokenId>& path) {
  std::uint64_t hash = seed;
  for (TokenId token : path) hash = child_node_key(hash, token);
  return hash;
}

// A random draft model: D depends on the whole path.
std::vector<float> random_draft(std::uint64_t seed, std::size_t vocab, Shape shape,
                                const std::vector<TokenId>& path) {
  std::mt19937_64 random(hash_of(seed, path));
  if (shape == Shape::mixed) shape = all_shapes[random() % 5];
  std::vector<float> row(vocab, 0.0f);
  const auto unit = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  switch (shape) {
    case Shape::one_hot:
      row[random() % vocab] = 1.0f;
      return row;
    case Shape::uniform:
      std::fill(row.begin(), row.end(), 1.0f / static_cast<float>(vocab));
      return row;
    case Shape::dyadic: {
      // 1/2, 1/4, ..., the last twice: sums are exact and values tie often.
      float prob = 0.5f;
      for (std::size_t i = 0; i < vocab; ++i) {
        row[i] = i + 1 == vocab ? 2.0f * prob : prob;
        if (i + 2 < vocab)
          prob *= 0.5f;
        else if (i + 2 == vocab)
          prob *= 0.5f;
      }
      std::shuffle(row.begin(), row.end(), random);
      return row;
    }
    default: {
      double sum = 0.0;
      std::vector<double> weights(vocab);
      const double inverse_temperature = shape == Shape::flat ? 0.3 : 4.0;
      for (double& w : weights) sum += w = std::pow(-std::log(unit()), inverse_temperature);
      for (std::size_t i = 0; i < vocab; ++i) row[i] = static_cast<float>(weights[i] / sum);
      return row;
    }
  }
}

// Rounds to multiples of 2^-22 whose sum is exactly 1, so that R renormalised in double and
// 1 - sum of D are the same number but for double's rounding.
std::vector<float> summing_to_one(std::vector<float> row) {
  double left = 1.0;
  for (float& prob : row) {
    prob = std::floor(prob * 0x1p22f) * 0x1p-22f;
    left -= static_cast<double>(prob);
  }
  *std::max_element(row.begin(), row.end()) += static_cast<float>(left);
  return row;
}

class TableSource final : public TextDraft {
 public:
  TableSource(const DraftByPath& draft, std::size_t vocab, const StepKey& key)
      : draft_(draft),
        noise_(static_cast<std::int64_t>(vocab)),
        drawer_(static_cast<std::int64_t>(vocab), noise_) {
    drawer_.begin(key, AcceptanceRule::rejection);
  }
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    ++passes;
    std::set<std::int32_t> distinct(nodes.begin(), nodes.end());
    EXPECT_EQ(distinct.size(), nodes.size());
    EXPECT_FALSE(nodes.empty());
    for (const std::int32_t node : nodes) {
      EXPECT_TRUE(evaluated.insert(node).second);
      if (node > 0) {
        EXPECT_TRUE(evaluated.count(candidates.parent[static_cast<std::size_t>(node)]));
      }
      std::vector<TokenId> path;
      for (std::int32_t n = node; n > 0; n = candidates.parent[static_cast<std::size_t>(n)]) {
        path.insert(path.begin(), candidates.token[static_cast<std::size_t>(n)]);
      }
      const std::vector<float> row = draft_(path);
      std::copy(row.begin(), row.end(), drawer_.prepare(node).begin());
      drawer_.ready(node);
    }
  }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    ++draws;
    return drawer_.child(candidates, node, rank);
  }
  std::int32_t passes = 0;
  std::int64_t draws = 0;
  std::set<std::int32_t> evaluated;

 private:
  const DraftByPath& draft_;
  NoiseCache noise_;
  ChildDrawer drawer_;
};

using Paths = std::map<std::vector<std::int32_t>, std::pair<TokenId, double>>;

Paths paths_of(const TokenTree& tree) {
  Paths paths;
  std::vector<std::vector<std::int32_t>> ranks(static_cast<std::size_t>(tree.nodes()));
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    ranks[i] = ranks[static_cast<std::size_t>(tree.parent[i])];
    ranks[i].push_back(tree.rank[i]);
    paths[ranks[i]] = {tree.token[i], tree.value[i]};
  }
  return paths;
}

Paths paths_of(const NaiveTree& tree) {
  Paths paths;
  for (const auto& node : tree.nodes) paths[node.ranks] = {node.tokens.back(), node.value};
  return paths;
}

void expect_same(const Paths& a, const Paths& b) {
  ASSERT_EQ(a.size(), b.size());
  for (auto x = a.begin(), y = b.begin(); x != a.end(); ++x, ++y) {
    ASSERT_EQ(x->first, y->first);
    ASSERT_EQ(x->second.first, y->second.first);
    ASSERT_NEAR(x->second.second, y->second.second, 1e-6 * y->second.second + 1e-12);
  }
}

std::int32_t evaluated_depth(const NaiveTree& tree) {
  std::size_t depth = 0;
  for (const auto& node : tree.nodes) depth = std::max(depth, node.ranks.size());
  return static_cast<std::int32_t>(std::max<std::size_t>(depth, 1));
}

TEST(Dyspec, BatchedGrowthIsAlgorithmOne) {
  const auto policy = make_dyspec_policy();
  TokenTree tree;
  std::int64_t trees = 0, printed_trees = 0, near_ties = 0, nodes = 0, passes = 0, calls = 0,
               draws = 0;
  // 420: each combination of what seeds choose.
  for (std::uint64_t seed = 0; seed < (testing::sanitized ? 420u : 1260u); ++seed) {
    const Shape shape = all_shapes[seed % 6];
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 3, 4, 8, 17, 40}[seed % 7];
    const bool exact_sums = seed / 6 % 2 == 0;
    const DraftByPath draft = [&](const std::vector<TokenId>& path) {
      std::vector<float> row = random_draft(seed, vocab, shape, path);
      return exact_sums ? summing_to_one(row) : row;
    };
    for (const std::int32_t size : {1, 2, 3, 5, 8, 16, 31, 64, 128, 256}) {
      if (size > 64 && seed % 4 != 0) continue;
      GrowthLimits limits;
      limits.max_size = size;
      if (seed % 5 == 1) limits.max_depth = 1 + static_cast<std::int32_t>(seed / 5 % 6);
      if (seed % 5 == 2) limits.min_value = 0.3 / static_cast<double>(size);
      const StepKey key{seed, 1, static_cast<std::uint64_t>(size), 0};
      TableSource source(draft, vocab, key);
      tree.reset(0);
      grow_tree(*policy, source, limits, tree);
      tree.validate(static_cast<std::int32_t>(vocab));
      ASSERT_LE(tree.size(), size);
      ASSERT_LE(tree.height(), limits.max_depth);
      // As many passes as the tree is deep, the root's included.
      ASSERT_EQ(source.passes, std::max(tree.height(), 1));
      // Round r draws what comes before the cut, while the r - 1 ancestors of its deepest
      // positions keep their places.
      const std::int32_t rounds = std::min(limits.max_depth, limits.max_size);
      ASSERT_LE(source.draws, rounds * limits.max_size - rounds * (rounds - 1) / 2);

      const NaiveTree exact = testing::naive_dyspec(draft, limits, key, NaiveValues::plain, 0.0);
      expect_same(paths_of(tree), paths_of(exact));
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(source.passes, evaluated_depth(exact));
      // The order of nodes is Algorithm 1's too.
      for (std::size_t i = 0; i < exact.nodes.size(); ++i) {
        ASSERT_EQ(tree.token[i + 1], exact.nodes[i].tokens.back());
      }

      ++trees;
      nodes += tree.size();
      passes += source.passes;
      calls += exact.draft_calls;
      draws += source.draws;
      if (!exact_sums) continue;

      // As printed. Where values tie but for double's rounding the trees may differ, there alone.
      const NaiveTree printed =
          testing::naive_dyspec(draft, limits, key, NaiveValues::residual, 1e-12);
      const Paths ours = paths_of(tree), theirs = paths_of(printed);
      ++printed_trees;
      std::set<std::vector<std::int32_t>> only_one;
      double least = 1.0;
      for (const auto& [path, node] : ours) {
        least = std::min(least, node.second);
        if (theirs.count(path) == 0) only_one.insert(path);
      }
      for (const auto& [path, node] : theirs) {
        if (ours.count(path) == 0) only_one.insert(path);
      }
      if (only_one.empty()) {
        expect_same(ours, theirs);
        if (::testing::Test::HasFatalFailure()) return;
      }
      near_ties += only_one.empty() ? 0 : 1;
      for (const auto& path : only_one) {
        const double value = ours.count(path) != 0 ? ours.at(path).second : theirs.at(path).second;
        ASSERT_NEAR(value, least, 1e-12 * least) << "seed " << seed << " size " << size;
      }
    }
  }
  std::cout << trees << " trees of " << nodes << " nodes: " << passes
            << " draft passes where Algorithm 1 makes " << calls << "; " << draws
            << " tokens drawn. Of " << printed_trees
            << " trees compared with the listing as printed, " << near_ties
            << " differ by near-ties of rounding\n";
}

TEST(Dyspec, OneHotAndEmptyDrafts) {
  const auto policy = make_dyspec_policy();
  const auto grow = [&](const DraftByPath& draft, GrowthLimits limits) {
    TableSource source(draft, 3, {1, 1, 1, 1});
    TokenTree tree;
    tree.reset(2);
    grow_tree(*policy, source, limits, tree);
    tree.validate(3);
    EXPECT_EQ(tree.token[0], 2);
    return tree;
  };
  const DraftByPath one_hot = [](const std::vector<TokenId>&) {
    return std::vector<float>{0.0f, 1.0f, 0.0f};
  };
  GrowthLimits limits;
  limits.max_size = 9;
  EXPECT_EQ(grow(one_hot, limits).height(), 9);
  limits.max_depth = 1;
  EXPECT_EQ(grow(one_hot, limits).size(), 1);
  limits.max_depth = 0;
  EXPECT_EQ(grow(one_hot, limits).size(), 0);
  limits = {};
  limits.max_size = 0;
  EXPECT_EQ(grow(one_hot, limits).size(), 0);
}

TEST(DyspecThreshold, ExpandsWhatReachesTheThreshold) {
  const auto policy = make_dyspec_policy();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Shape shape = all_shapes[seed % 6];
    const std::size_t vocab = 2 + seed % 9;
    const DraftByPath draft = [&](const std::vector<TokenId>& path) {
      return random_draft(seed, vocab, shape, path);
    };
    GrowthLimits limits;
    limits.max_size = 100000;
    limits.min_value = std::pow(0.5, static_cast<double>(seed % 7 + 1));
    limits.max_depth = seed % 3 == 0 ? 3 : 40;
    const StepKey key{seed, 2, 3, 4};
    TableSource source(draft, vocab, key);
    TokenTree tree;
    tree.reset(0);
    grow_tree(*policy, source, limits, tree);
    tree.validate(static_cast<std::int32_t>(vocab));
    ASSERT_EQ(source.passes, std::max(tree.height(), 1));
    // Unlimited, it is all positions of that value.
    expect_same(paths_of(tree),
                paths_of(testing::naive_dyspec(draft, limits, key, NaiveValues::plain, 0.0)));
    if (::testing::Test::HasFatalFailure()) return;
    for (std::size_t i = 1; i < tree.value.size(); ++i) {
      ASSERT_GE(tree.value[i], limits.min_value);
    }

    // Capped: the best part of the whole tree.
    const std::int32_t cap = std::max(1, tree.size() / 2);
    limits.max_size = cap;
    TableSource capped_source(draft, vocab, key);
    TokenTree capped;
    capped.reset(0);
    grow_tree(*policy, capped_source, limits, capped);
    capped.validate(static_cast<std::int32_t>(vocab));
    ASSERT_EQ(capped.size(), std::min(cap, tree.size()));
    const Paths whole = paths_of(tree), part = paths_of(capped);
    double least = 1.0;
    for (const auto& [path, node] : part) {
      ASSERT_TRUE(whole.count(path));
      least = std::min(least, node.second);
    }
    for (const auto& [path, node] : whole) {
      if (part.count(path) == 0) {
        ASSERT_LE(node.second, least);
      }
    }
  }
}

// Two tokens that will be accepted are worth a third, one that is nearly lost ends the chain; and
// steps of the costs are looked across.
TEST(Chain, EndsWhereNothingMorePays) {
  AcceptanceCalibration calibration(AcceptanceRule::rejection);
  for (int i = 0; i < 400; ++i) {
    const double u = i % 2 == 0 ? 0.25 : 0.75;
    calibration.observe(0, 1 + i % 5, 0.5, u < 0.5, u);
  }
  calibration.update();
  class Prices final : public GrowthEconomics {
   public:
    double least_node_cost(std::int32_t) const override { return 0.0; }
    double pass_cost(std::int32_t, std::int32_t) const override { return 0.02; }
    // Rows in pairs.
    double verify_cost(std::int32_t size) const override { return 0.2 * ((size + 1) / 2); }
  } prices;
  const auto policy = make_chain_policy({&calibration, &prices});
  const DraftByPath law = [](const std::vector<TokenId>&) { return std::vector<float>(4, 0.25f); };
  int hopeful = 0, hopeless = 0, others = 0;
  for (std::uint64_t step = 0; step < 400; ++step) {
    TableSource source(law, 4, {1, 2, step, 4});
    TokenTree tree;
    tree.reset(3);
    GrowthLimits limits;
    limits.max_size = 6;
    grow_tree(*policy, source, limits, tree);
    tree.validate(4);
    ASSERT_EQ(tree.height(), tree.size());
    ASSERT_GE(tree.size(), 2) << "the second row is free";
    const float worse = std::max(tree.uniform[1], tree.uniform[2]);
    if (worse < 0.3f) {
      ++hopeful;
      EXPECT_GE(tree.size(), 4) << worse;
    } else if (worse > 0.75f) {
      ++hopeless;
      EXPECT_EQ(tree.size(), 2) << worse;
    } else {
      ++others;
    }
  }
  EXPECT_GT(hopeful, 20);
  EXPECT_GT(hopeless, 100);
  EXPECT_GT(others, 100);
}

TEST(Chain, IsOnePath) {
  const auto policy = make_chain_policy();
  const DraftByPath draft = [&](const std::vector<TokenId>& path) {
    if (path.size() == 6) return std::vector<float>(5, 0.0f);  // D is empty
    return random_draft(1, 5, Shape::peaked, path);
  };
  for (const std::int32_t size : {0, 1, 4, 6, 9}) {
    for (const std::int32_t depth : {2, 100}) {
      TableSource source(draft, 5, {1, 2, 3, 4});
      TokenTree tree;
      tree.reset(3);
      GrowthLimits limits;
      limits.max_size = size;
      limits.max_depth = depth;
      grow_tree(*policy, source, limits, tree);
      tree.validate(5);
      EXPECT_EQ(tree.size(), std::min({size, depth, 6}));
      EXPECT_EQ(tree.height(), tree.size());
    }
  }
}

}  // namespace
}  // namespace coppice
