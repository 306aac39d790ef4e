#include "reference/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "reference/table_draft.h"

namespace coppice::oracle_test {
namespace {

using testing::TokenPath;
using Tree = std::set<TokenPath>;

constexpr TokenId vocab = 3;
constexpr std::size_t largest = 6;

// Every tree of 0 to `largest` nodes over a vocabulary of 3, by size.
std::vector<std::set<Tree>> all_trees() {
  std::vector<std::set<Tree>> trees{{Tree{}}};
  while (trees.size() <= largest) {
    std::set<Tree> larger;
    for (const Tree& tree : trees.back()) {
      std::vector<TokenPath> parents(tree.begin(), tree.end());
      parents.push_back({});
      for (const TokenPath& parent : parents) {
        for (TokenId token = 0; token < vocab; ++token) {
          Tree with = tree;
          TokenPath path = parent;
          path.push_back(token);
          if (with.insert(path).second) larger.insert(with);
        }
      }
    }
    trees.push_back(larger);
  }
  return trees;
}

struct Model {
  std::uint64_t seed;
  std::vector<float> scratch;
  std::span<const float> operator()(std::span<const TokenId> path) {
    return scratch = testing::random_row(seed, vocab, {path.begin(), path.end()});
  }
  double path_prob(const TokenPath& path) {
    double product = 1.0;
    for (std::size_t i = 0; i < path.size(); ++i) {
      product *=
          static_cast<double>((*this)(std::span(path).first(i))[static_cast<std::size_t>(path[i])]);
    }
    return product;
  }
};

// Tokens of a text of the target that a tree accepts, the bonus included, averaged over all texts.
double accepted_length(Model& target, const Tree& tree) {
  double mean = 1.0;
  for (std::int32_t text = 0; text < 729; ++text) {
    TokenPath tokens;
    for (std::int32_t rest = text; tokens.size() < largest; rest /= vocab) {
      tokens.push_back(rest % vocab);
    }
    std::size_t accepted = 0;
    const auto begin = tokens.begin();
    while (accepted < largest &&
           tree.contains({begin, begin + static_cast<std::ptrdiff_t>(accepted) + 1})) {
      ++accepted;
    }
    if (accepted > 0) mean += target.path_prob(tokens) * static_cast<double>(accepted);
  }
  return mean;
}

TEST(Oracle, NoTreeOfUpToSixNodesIsBetter) {
  const std::vector<std::set<Tree>> trees = all_trees();
  ASSERT_EQ(trees[largest].size(), 7752u);  // ternary trees: C(3 n, n) / (2 n + 1) for n = 7
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Model target{seed, {}};
    Model draft{seed % 2 == 0 ? 999 + 3 * seed : 1000 + seed, {}};
    const bool with_draft = seed % 3 == 1;
    const std::int32_t max_depth = seed % 4 == 3 ? 2 : 1 << 20;
    std::map<TokenPath, double> worth;  // of an admitted path
    for (const Tree& tree : trees[largest]) {
      for (const TokenPath& path : tree) {
        if (worth.contains(path)) continue;
        bool admitted = path.size() <= static_cast<std::size_t>(max_depth);
        if (with_draft) admitted = admitted && draft.path_prob(path) > 0.0;
        worth[path] = admitted ? target.path_prob(path) : -1.0;
      }
    }
    double best = 1.0;  // of all trees so far: where fewer nodes are admitted, a smaller one
    for (std::size_t size = 0; size <= largest; ++size) {
      for (const Tree& tree : trees[size]) {
        double length = 1.0;
        bool admitted = true;
        for (const TokenPath& path : tree) {
          admitted = admitted && worth.at(path) >= 0.0;
          length += worth.at(path);
        }
        if (admitted) best = std::max(best, length);
      }
      GrowthLimits limits;
      limits.max_size = static_cast<std::int32_t>(size);
      limits.max_depth = max_depth;
      const TokenTree found = with_draft ? oracle_tree(2, limits, std::ref(target), std::ref(draft))
                                         : oracle_tree(2, limits, std::ref(target));
      found.validate(vocab);
      EXPECT_EQ(found.token[0], 2);
      ASSERT_LE(found.size(), limits.max_size);
      ASSERT_LE(found.height(), max_depth);
      const double length = std::accumulate(found.value.begin(), found.value.end(), 0.0);
      ASSERT_NEAR(length, best, 1e-12) << "seed " << seed << ", size " << size;
      // `value` is what it says it is.
      const std::vector<TokenPath> paths = testing::paths_of(found);
      ASSERT_NEAR(length, accepted_length(target, Tree(paths.begin(), paths.end())), 1e-6);
    }
  }
}

TEST(Oracle, KeepsToItsLimits) {
  Model target{1, {}};
  GrowthLimits limits;
  limits.max_size = 300;
  limits.min_value = 0.05;
  const TokenTree tree = oracle_tree(0, limits, std::ref(target));
  EXPECT_GT(tree.size(), 3);
  for (const double value : tree.value) EXPECT_GE(value, 0.05);
  // The whole set of such paths: nothing next to the tree is worth as much.
  const std::vector<TokenPath> paths = testing::paths_of(tree);
  const Tree held(paths.begin(), paths.end());
  for (TokenPath path : paths) {
    for (path.push_back(0); path.back() < vocab; ++path.back()) {
      EXPECT_EQ(held.contains(path), target.path_prob(path) >= 0.05);
    }
  }
  // A draft that knows fewer tokens than the target.
  const TokenTree narrow = oracle_tree(0, limits, std::ref(target), [](std::span<const TokenId>) {
    static const float one[] = {1.0f};
    return std::span<const float>(one);
  });
  for (const TokenId token : narrow.token) EXPECT_EQ(token, 0);
}

}  // namespace
}  // namespace coppice::oracle_test
