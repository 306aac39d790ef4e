// What a tree in motion reads, against counting token by token.
#include "workload/motion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/stopwatch.h"
#include "workload/plan_model.h"
#include "workload/templates.h"

namespace coppice::workload {
namespace {

using testing::random_template;

struct Iteration {
  std::int64_t per_query = 0;
  std::vector<std::int64_t> runs;   ///< lengths of the nodes that are read
  std::vector<std::int64_t> paths;  ///< by query
};

Iteration iteration_of(const TreeTemplate& tree, std::int64_t i) {
  Iteration result;
  std::set<std::int32_t> read;
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    const TemplateNode& node = tree.nodes[n];
    if (i < node.begin || i > node.end) continue;
    std::int64_t path = i - node.begin + 1;
    result.runs.push_back(path);
    for (std::int32_t up = node.parent; up >= 0;
         up = tree.nodes[static_cast<std::size_t>(up)].parent) {
      path += tree.nodes[static_cast<std::size_t>(up)].tokens;
      read.insert(up);
    }
    result.per_query += path;
    result.paths.push_back(path);
  }
  for (const std::int32_t node : read) {
    const std::int64_t tokens = tree.nodes[static_cast<std::size_t>(node)].tokens;
    if (tokens > 0) result.runs.push_back(tokens);
  }
  return result;
}

TEST(Motion, CountsAsTokenByToken) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const TreeTemplate tree = random_template(random);
    Reads expected;
    PlanReads node, radix;
    for (const TemplateNode& n : tree.nodes)
      expected.iterations = std::max(expected.iterations, n.end);
    for (std::int64_t i = 1; i <= expected.iterations; ++i) {
      const Iteration now = iteration_of(tree, i);
      if (now.paths.empty()) continue;
      std::int64_t by_tree = 0;
      for (const std::int64_t run : now.runs) by_tree += run;
      expected.generated += std::ssize(now.paths);
      expected.per_query += now.per_query;
      expected.by_tree += by_tree;
      expected.peak_by_tree = std::max(expected.peak_by_tree, by_tree);
      expected.peak_per_query = std::max(expected.peak_per_query, now.per_query);
      expected.most_branches =
          std::max<std::int64_t>(expected.most_branches, std::ssize(now.paths));
      node +=
          {by_tree, std::ssize(now.runs), *std::max_element(now.runs.begin(), now.runs.end()), 1};
      radix += {now.per_query, std::ssize(now.paths),
                *std::max_element(now.paths.begin(), now.paths.end()), 1};
    }
    EXPECT_EQ(reads_of(tree), expected) << "round " << round;
    EXPECT_EQ(reads_by(Plan::node, tree), node) << "round " << round;
    EXPECT_EQ(reads_by(Plan::radix, tree), radix) << "round " << round;
  }
}

// DeFT's few-shot workload: the sum of 4000 + b i for i from 1 to 399.
TEST(Motion, FewShotReadsWhatThePaperSays) {
  for (const std::int64_t b : {20, 30, 50}) {
    const Reads reads = reads_of(few_shot(4000, static_cast<std::int32_t>(b), 400));
    EXPECT_EQ(reads.by_tree, 399 * 4000 + b * (399 * 400 / 2));
    EXPECT_EQ(reads.per_query, b * (399 * 4000 + 399 * 400 / 2));
    EXPECT_EQ(reads.generated, 399 * b);
  }
  EXPECT_EQ(reads_of(few_shot(4000, 20, 400)).by_tree, 3192000);
}

TEST(Motion, LongRunsAreCutByPlansThatCut) {
  // One iteration: a prompt of 1300 tokens and two branches of one each.
  const TreeTemplate tree = few_shot(1300, 2, 2);
  EXPECT_EQ(reads_by(Plan::node, tree), (PlanReads{1302, 3, 1300, 1}));
  EXPECT_EQ(reads_by(Plan::node_chunk, tree), (PlanReads{1302, 5, 512, 1}));
  EXPECT_EQ(reads_by(Plan::flatten, tree), (PlanReads{1302, 3, 434, 1}));
  EXPECT_EQ(reads_by(Plan::subtree, tree), reads_by(Plan::flatten, tree));
  EXPECT_EQ(reads_by(Plan::radix, tree), (PlanReads{2602, 6, 512, 1}));
  // Reads of two copies, each of 1301 tokens.
  EXPECT_EQ(reads_by(Plan::node, tree, true), (PlanReads{2602, 2, 1301, 1}));
  EXPECT_EQ(reads_by(Plan::node_chunk, tree, true), (PlanReads{2602, 6, 512, 1}));
  EXPECT_EQ(reads_by(Plan::flatten, tree, true), (PlanReads{2602, 6, 434, 1}));
}

// The longest of chains: 16,000 ancestors in each of some hundred thousand iterations.
TEST(Motion, AChainIsCountedAtOnce) {
  constexpr std::int64_t length = 20;
  TreeTemplate chain;
  for (std::size_t n = 0; n < most_nodes; ++n) {
    const std::int64_t begin = 1 + (static_cast<std::int64_t>(n) - 1) * length;
    chain.nodes.push_back({static_cast<std::int32_t>(n) - 1, length, begin, begin + length - 1});
  }
  const auto written = static_cast<std::int64_t>(most_nodes - 1) * length;
  const double start = now_seconds();
  const Reads reads = reads_of(chain);
  const std::int64_t all = written * length + written * (written + 1) / 2;
  EXPECT_EQ(reads.by_tree, all);
  EXPECT_EQ(reads.per_query, all);
  for (const Plan plan : all_plans) EXPECT_EQ(reads_by(plan, chain).kv_tokens, all);
  EXPECT_LT(now_seconds() - start, 5.0);
}

TEST(Motion, SpansCompleteEveryNodeOnceAndKeepToTheirOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const TreeTemplate tree = random_template(random);
    std::multiset<std::int32_t> completed;
    std::int64_t last = 0;
    for_each_span(tree, [&](const Span& span) {
      EXPECT_GT(span.begin, last);
      EXPECT_GE(span.end, span.begin);
      last = span.end;
      for (const std::int32_t node : span.completed) {
        EXPECT_EQ(tree.nodes[static_cast<std::size_t>(node)].end, span.end);
        completed.insert(node);
      }
    });
    std::multiset<std::int32_t> written;
    for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
      if (tree.nodes[n].tokens > 0) written.insert(static_cast<std::int32_t>(n));
    }
    EXPECT_EQ(completed, written);
  }
}

TEST(Motion, AShrunkTreeKeepsItsShape) {
  TreeTemplate tree;
  tree.nodes = {{-1, 1104, -1103, 0}, {0, 100, 1, 100}, {0, 7, 1, 7}, {1, 33, 111, 143}};
  const TreeTemplate small = shrunk(tree, 10);
  const std::vector<std::int64_t> tokens = {111, 10, 1, 4}, begins = {-110, 1, 1, 12};
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    EXPECT_EQ(small.nodes[n].tokens, tokens[n]);
    EXPECT_EQ(small.nodes[n].begin, begins[n]);
    EXPECT_EQ(small.nodes[n].end, begins[n] + tokens[n] - 1);
    EXPECT_EQ(small.nodes[n].parent, tree.nodes[n].parent);
  }
}

TEST(Motion, KvIsOfNoMoreUseWhenNothingBelowIsWritten) {
  TreeTemplate tree;
  tree.nodes = {{-1, 5, -4, 0}, {0, 10, 1, 10}, {0, 3, 1, 3}, {2, 20, 4, 23}, {1, 0, 11, 10}};
  EXPECT_EQ(pruned_after(tree), (std::vector<std::int64_t>{23, 10, 23, 23, 10}));
}

}  // namespace
}  // namespace coppice::workload
