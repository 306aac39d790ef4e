#include "drafting/expand_rerank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "reference/oracle.h"
#include "reference/table_draft.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TokenPath;

struct Candidate {
  TokenPath path;
  double path_prob;
};

// The expansion phase by definition: all layers, the best beam_width of each expanded to their
// beam_width children of largest score(path), D being positive.
template <typename Score>
std::vector<Candidate> expand(const TableDraft::Rows& draft, const ExpandRerankOptions& options,
                              const Score& score) {
  std::vector<Candidate> all, beam{{{}, 1.0}};
  for (std::int32_t layer = 0; layer < options.depth; ++layer) {
    std::vector<Candidate> next;
    for (const Candidate& parent : beam) {
      const std::vector<float> row = draft(parent.path);
      const std::vector<float> scores = score(parent.path, row);
      std::vector<TokenId> order(row.size());
      std::iota(order.begin(), order.end(), 0);
      std::erase_if(order, [&](TokenId t) { return !(row[static_cast<std::size_t>(t)] > 0.0f); });
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
      });
      if (order.size() > static_cast<std::size_t>(options.beam_width)) {
        order.resize(static_cast<std::size_t>(options.beam_width));
      }
      for (const TokenId token : order) {
        Candidate child = parent;
        child.path.push_back(token);
        child.path_prob *= static_cast<double>(row[static_cast<std::size_t>(token)]);
        next.push_back(child);
      }
    }
    all.insert(all.end(), next.begin(), next.end());
    // The best of the layer, in the order drawn.
    std::vector<std::size_t> order(next.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return next[a].path_prob > next[b].path_prob;
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(options.beam_width)));
    std::sort(order.begin(), order.end());
    beam.clear();
    for (const std::size_t i : order) beam.push_back(next[i]);
  }
  return all;
}

std::set<TokenPath> rerank(std::vector<Candidate> all, std::size_t size, double min_value) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.path_prob > b.path_prob;
  });
  std::set<TokenPath> best;
  for (const Candidate& candidate : all) {
    if (best.size() < size && candidate.path_prob >= min_value) best.insert(candidate.path);
  }
  return best;
}

TEST(ExpandRerank, IsTheLiteralBeamReranked) {
  std::int64_t trees = 0, passes = 0, heights = 0, layers = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 3, 5, 12}[seed % 5];
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    const StepKey key{seed, 1, 2, 9};
    for (const AcceptanceRule draw : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      const auto score = [&](const TokenPath& path, std::vector<float> row) {
        if (draw == AcceptanceRule::greedy) return row;
        std::vector<float> noise(vocab);
        inverse_exponential_noise(key.seed, key.sequence, key.noise_position(path.size()), noise);
        for (std::size_t i = 0; i < vocab; ++i) row[i] *= noise[i];
        return row;
      };
      for (const std::int32_t size : {0, 1, 2, 5, 11, 40}) {
        const ExpandRerankOptions options{1 + static_cast<std::int32_t>(seed % 4),
                                          1 + static_cast<std::int32_t>(seed / 4 % 5)};
        GrowthLimits limits;
        limits.max_size = size;
        if (seed % 3 == 1) limits.max_depth = 1 + static_cast<std::int32_t>(seed / 3 % 3);
        if (seed % 4 == 1) limits.min_value = 0.03;
        const auto policy = make_expand_rerank_policy(options, draw);
        TableDraft source(draft, vocab, key, draw);
        TokenTree tree;
        tree.reset(0);
        grow_tree(*policy, source, limits, tree);
        tree.validate(static_cast<std::int32_t>(vocab));
        ASSERT_FALSE(source.broken);
        ASSERT_LE(tree.size(), size);
        ASSERT_LE(source.most_live, static_cast<std::size_t>(size + 1));

        const ExpandRerankOptions bounded{options.beam_width,
                                          std::min(options.depth, limits.max_depth)};
        const std::vector<TokenPath> paths = testing::paths_of(tree);
        ASSERT_EQ(std::set<TokenPath>(paths.begin(), paths.end()),
                  rerank(expand(draft, bounded, score), static_cast<std::size_t>(size),
                         limits.min_value));
        // A pass per layer of the tree, and one more where all of its children were dropped.
        ASSERT_GE(source.passes, tree.height());
        ASSERT_LE(source.passes, std::min(tree.height() + 1, bounded.depth));
        ++trees;
        passes += source.passes;
        heights += tree.height();
        layers += bounded.depth;

        TableDraft again(draft, vocab, key, draw);
        TokenTree repeated;
        repeated.reset(0);
        grow_tree(*policy, again, limits, repeated);
        ASSERT_EQ(repeated.token, tree.token);
        ASSERT_EQ(repeated.parent, tree.parent);
      }
    }
  }
  std::cout << trees << " trees, " << heights << " deep in all: " << passes
            << " draft passes where expanding all layers makes " << layers << "\n";
}

// No tree among the candidates of its size has a larger sum of w.
TEST(ExpandRerank, KeepsTheBestTreeOfAllCandidates) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::size_t vocab = 2 + seed % 2;
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    const ExpandRerankOptions options{2, 3};
    const std::vector<Candidate> all =
        expand(draft, options, [](const TokenPath&, const std::vector<float>& row) { return row; });
    ASSERT_LE(all.size(), 10u);
    std::vector<double> best(all.size() + 1, 0.0);
    for (std::uint32_t chosen = 0; chosen < 1u << all.size(); ++chosen) {
      std::set<TokenPath> paths;
      double sum = 0.0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if ((chosen >> i & 1) == 0) continue;
        paths.insert(all[i].path);
        sum += all[i].path_prob;
      }
      const bool is_tree = std::all_of(paths.begin(), paths.end(), [&](TokenPath path) {
        path.pop_back();
        return path.empty() || paths.contains(path);
      });
      if (is_tree) best[paths.size()] = std::max(best[paths.size()], sum);
    }
    for (std::size_t size = 1; size <= all.size(); ++size) {
      TableDraft source(draft, vocab, {seed, 1, 1, 1}, AcceptanceRule::greedy);
      GrowthLimits limits;
      limits.max_size = static_cast<std::int32_t>(size);
      TokenTree tree;
      tree.reset(0);
      grow_tree(*make_expand_rerank_policy(options, AcceptanceRule::greedy), source, limits, tree);
      ASSERT_EQ(tree.size(), limits.max_size);
      ASSERT_NEAR(std::accumulate(tree.path_prob.begin() + 1, tree.path_prob.end(), 0.0),
                  best[size], 1e-12);
    }
  }
}

// With room in the beam for every node of the tree, it is the best of all trees by draft
// probability: the oracle's, the draft being its own target.
TEST(ExpandRerank, AWideBeamFindsTheBestTreeOfAll) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::size_t vocab = 3 + seed % 8;
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    GrowthLimits limits;
    limits.max_size = 12;
    TableDraft source(draft, vocab, {seed, 1, 1, 1}, AcceptanceRule::greedy);
    TokenTree tree;
    tree.reset(0);
    grow_tree(*make_expand_rerank_policy({12, 12}, AcceptanceRule::greedy), source, limits, tree);
    std::vector<float> row;
    const TokenTree best = oracle_tree(0, limits, [&](std::span<const TokenId> path) {
      return std::span<const float>(row = draft({path.begin(), path.end()}));
    });
    const auto sum = [](const std::vector<double>& w) {
      return std::accumulate(w.begin(), w.end(), 0.0);
    };
    ASSERT_NEAR(sum(tree.path_prob), sum(best.value), 1e-12);
  }
}

TEST(ExpandRerank, RefusesSampledRejection) {
  try {
    make_expand_rerank_policy({}, AcceptanceRule::rejection);
    FAIL() << "sampled rejection was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("would bias"), std::string::npos);
  }
  EXPECT_THROW(make_expand_rerank_policy({0, 1}, AcceptanceRule::greedy), Error);
  EXPECT_THROW(make_expand_rerank_policy({1, 0}, AcceptanceRule::coupled), Error);
  EXPECT_NO_THROW(make_expand_rerank_policy({}, AcceptanceRule::coupled));
}

}  // namespace
}  // namespace coppice
