// Verdicts of the GPU against the host's rules re-told in double, with the same random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include "base/error.h"
#include "cuda/sampler_rig.h"
#include "reference/sampling_reference.h"

namespace coppice::sampler_judge_test {
namespace {

using testing::GuardedArray;
using testing::infinity;
using testing::JudgedPath;
using testing::JudgedTree;
using testing::random_logits;

std::size_t index_of(std::int32_t i) { return static_cast<std::size_t>(i); }

/// How target and draft of a node relate.
enum class Pair { unrelated, near, equal, disjoint, flat, peaked, count };

/// A random tree with logits, judged by both.
struct Case {
  JudgedTree tree;
  std::vector<std::int32_t> store;  ///< by row
  SamplingParams params;
  std::int32_t target_vocab = 0, draft_vocab = 0;
  std::vector<float> target_logits;              ///< [rows, target_vocab]
  std::vector<std::vector<float>> draft_logits;  ///< by row, [draft_vocab]
  TokenCounts counts;                            ///< of the text
};

class SamplerJudge : public testing::SamplerTest {
 protected:
  static constexpr std::int32_t most_rows = 48;

  // Rows in depth-first order; siblings in any order, their ranks apart from it.
  void make_shape(JudgedTree& tree, std::int32_t nodes, int most_children) {
    std::vector<std::int32_t> parent{-1}, rank{0}, children{0};
    while (static_cast<std::int32_t>(parent.size()) < nodes) {
      const auto p = random_() % parent.size();
      if (children[p] >= most_children) continue;
      parent.push_back(static_cast<std::int32_t>(p));
      rank.push_back(children[p]++);
      children.push_back(0);
    }
    const auto visit = [&](const auto& self, std::int32_t node, std::int32_t row_of_parent,
                           std::int32_t depth) -> void {
      const auto row = static_cast<std::int32_t>(tree.token.size());
      tree.token.push_back(0);
      tree.parent.push_back(row_of_parent);
      tree.depth.push_back(depth);
      tree.rank.push_back(rank[index_of(node)]);
      std::vector<std::int32_t> own;
      for (std::int32_t n = 0; n < nodes; ++n) {
        if (parent[index_of(n)] == node) own.push_back(n);
      }
      std::shuffle(own.begin(), own.end(), random_);
      for (const std::int32_t child : own) self(self, child, row, depth + 1);
    };
    visit(visit, 0, -1, 0);
  }

  void make_logits(Case& c, Pair pair, std::size_t row) {
    const auto target_size = index_of(c.target_vocab), draft_size = index_of(c.draft_vocab);
    std::vector<float> target =
        random_logits(random_, target_size, static_cast<int>(random_() % 5));
    std::vector<float> draft = random_logits(random_, draft_size, static_cast<int>(random_() % 4));
    std::normal_distribution<float> normal(0.0f, 0.3f);
    for (std::size_t i = 0; i < draft_size; ++i) {
      float& d = draft[i];
      const float t = i < target_size ? target[i] : 0.0f;
      if (pair == Pair::near) d = t + normal(random_);
      if (pair == Pair::equal) d = t;
      if (pair == Pair::flat) d = 0.5f;
      if (pair == Pair::peaked) d = 12.0f * normal(random_);
      if (pair == Pair::disjoint) {
        d = i % 2 == 0 ? normal(random_) : -infinity;
        if (i < target_size) target[i] = i % 2 == 0 ? -infinity : 3.0f * normal(random_);
      }
    }
    std::copy(target.begin(), target.end(),
              c.target_logits.begin() + static_cast<std::ptrdiff_t>(row * target_size));
    c.draft_logits[row] = draft;
  }

  std::vector<bool> seen_at(const Case& c, std::int32_t row) const {
    std::vector<bool> seen;
    if (c.params.repetition_penalty == 1.0) return seen;
    for (const std::int32_t count : c.counts.counts()) seen.push_back(count > 0);
    for (; c.tree.parent[index_of(row)] >= 0; row = c.tree.parent[index_of(row)]) {
      seen[index_of(c.tree.token[index_of(row)])] = true;
    }
    return seen;
  }

  // Some children come from no distribution after all; where all of a node's do, it may have no D.
  void propose_some(Case& c) {
    const std::size_t rows = c.tree.token.size();
    c.tree.certain.assign(rows, 0);
    std::vector<int> drawn(rows, 0);
    for (std::size_t row = 1; row < rows; ++row) {
      c.tree.certain[row] = random_() % 3 == 0 ? 1 : 0;
      if (c.tree.certain[row] == 0) ++drawn[index_of(c.tree.parent[row])];
    }
    for (std::size_t row = 0; row < rows; ++row) {
      if (c.store[row] < 0 || drawn[row] > 0 || random_() % 2 == 0) continue;
      c.store[row] = -1;
      std::fill(c.tree.draft[row].probs.begin(), c.tree.draft[row].probs.end(), 0.0);
      std::fill(c.tree.draft[row].error.begin(), c.tree.draft[row].error.end(), 0.0);
    }
  }

  PenaltyText text_of(const Case& c) const { return {&c.counts, c.tree.token, c.tree.parent}; }

  // Draws level by level, so that a node's children come from its own row, as they would.
  void draw_tree(cuda::CudaSampler& sampler, Case& c, AcceptanceRule rule) {
    const std::size_t rows = c.tree.token.size();
    c.store.assign(rows, -1);
    std::vector<std::uint64_t> node_key(rows, root_node_key);
    std::vector<std::int32_t> free_store(most_rows);
    for (std::size_t i = 0; i < free_store.size(); ++i) {
      free_store[i] = static_cast<std::int32_t>(i);
    }
    std::shuffle(free_store.begin(), free_store.end(), random_);
    const auto common = index_of(std::min(c.target_vocab, c.draft_vocab));
    for (std::int32_t row = 0; index_of(row) < rows; ++row) {
      std::vector<std::int32_t> children;
      for (std::int32_t r = 0; index_of(r) < rows; ++r) {
        if (c.tree.parent[index_of(r)] == row) children.push_back(r);
      }
      if (children.empty()) continue;
      c.store[index_of(row)] = free_store.back();
      free_store.pop_back();
      const std::vector<DrawRow> draws{
          {c.store[index_of(row)], row, c.tree.depth[index_of(row)], node_key[index_of(row)]}};
      const PenaltyText text = text_of(c);
      testing::OneDraw batch;
      batch.key = c.tree.key;
      batch.params = c.params;
      batch.params.temperature = std::max(c.params.temperature, 0.5);
      batch.rule = rule;
      batch.rows = draws;
      batch.penalty = &text;
      const GuardedArray<float> logits(c.draft_logits[index_of(row)]);
      const Children drawn = draw(sampler, batch, logits.data(), c.draft_vocab)[0];
      c.tree.draft[index_of(row)] =
          testing::reference_law(std::span(c.draft_logits[index_of(row)]).first(common),
                                 batch.params, first_of(seen_at(c, row), common));
      // Tokens beyond what D has mass for, or beyond the draft: D is 0 there.
      testing::Law& draft = c.tree.draft[index_of(row)];
      draft.probs.resize(index_of(c.target_vocab), 0.0);
      draft.error.resize(index_of(c.target_vocab), 0.0);
      std::vector<bool> taken(index_of(c.target_vocab), false);
      for (const std::int32_t child : children) {
        const std::size_t rank = index_of(c.tree.rank[index_of(child)]);
        auto token = static_cast<TokenId>(random_() % index_of(c.target_vocab));
        // Sometimes a token of no draft, which no drawer yields.
        if (rank < drawn.size() && random_() % 12 != 0) token = drawn[rank].token;
        while (taken[index_of(token)]) token = (token + 1) % c.target_vocab;
        taken[index_of(token)] = true;
        c.tree.token[index_of(child)] = token;
        node_key[index_of(child)] =
            child_node_key(node_key[index_of(row)], c.tree.rank[index_of(child)]);
      }
    }
  }

  static std::vector<bool> first_of(std::vector<bool> all, std::size_t count) {
    if (all.size() > count) all.resize(count);
    return all;
  }

  Case make_case(cuda::CudaSampler& sampler, std::int32_t target_vocab, std::int32_t draft_vocab,
                 const SamplingParams& params, AcceptanceRule rule, std::int32_t most_nodes = 40) {
    Case c;
    c.target_vocab = target_vocab;
    c.draft_vocab = draft_vocab;
    c.params = params;
    c.tree.rule = rule;
    c.tree.key = {random_(), random_() % 3, random_() % 100, random_() % 1000};
    const auto most_children = static_cast<int>(
        std::min<std::int64_t>(std::min(target_vocab, draft_vocab), random_() % 2 == 0 ? 3 : 12));
    make_shape(c.tree, static_cast<std::int32_t>(1 + random_() % index_of(most_nodes)),
               most_children);
    const std::size_t rows = c.tree.token.size();
    c.target_logits.resize(rows * index_of(target_vocab));
    c.draft_logits.resize(rows);
    std::vector<std::int32_t> counts(index_of(target_vocab));
    for (std::int32_t& count : counts) count = random_() % 6 == 0 ? 2 : 0;
    c.counts = testing::counted(counts);
    c.tree.token[0] = static_cast<TokenId>(random_() % index_of(target_vocab));
    c.counts.add(c.tree.token[0]);
    const int pairs = static_cast<int>(Pair::count);
    const auto of_tree = static_cast<Pair>(random_() % pairs);
    for (std::size_t row = 0; row < rows; ++row) {
      const bool mixed = random_() % 3 == 0;
      make_logits(c, mixed ? static_cast<Pair>(random_() % pairs) : of_tree, row);
    }
    c.tree.target.resize(rows);
    c.tree.draft.resize(rows);
    draw_tree(sampler, c, rule);
    for (std::int32_t row = 0; index_of(row) < rows; ++row) {
      c.tree.target[index_of(row)] = testing::reference_law(
          std::span(c.target_logits)
              .subspan(index_of(row) * index_of(target_vocab), index_of(target_vocab)),
          params, seen_at(c, row));
    }
    return c;
  }

  DeviceVerdict judge(cuda::CudaSampler& sampler, const Case& c, std::int32_t padding = 0) {
    const PenaltyText text = text_of(c);
    testing::OneTree batch;
    batch.key = c.tree.key;
    batch.params = c.params;
    batch.rule = c.tree.rule;
    batch.token = c.tree.token;
    batch.parent = c.tree.parent;
    batch.depth = c.tree.depth;
    batch.rank = c.tree.rank;
    batch.store = c.store;
    batch.certain = c.tree.certain;
    batch.penalty = &text;
    stage_judge(sampler, batch);
    transfers_->send();
    const GuardedArray<float> logits(c.target_logits, random_() % 4);
    sampler.judge(logits.data(), static_cast<std::int32_t>(c.tree.token.size()) + padding);
    DeviceVerdict verdict;
    sampler.collect_verdicts({&verdict, 1});
    EXPECT_TRUE(logits.guards_intact());
    return verdict;
  }

  SamplingParams random_params(AcceptanceRule rule) {
    SamplingParams params;
    params.temperature = rule == AcceptanceRule::greedy ? 0.0 : random_() % 2 == 0 ? 1.0 : 0.6;
    if (random_() % 3 == 0) params.top_k = 1 + static_cast<std::int32_t>(random_() % 60);
    if (random_() % 3 == 0) params.top_p = 0.9;
    if (random_() % 5 == 0) params.min_p = 0.02;
    if (random_() % 2 == 0) params.repetition_penalty = random_() % 2 == 0 ? 1.3 : 0.8;
    return params;
  }

  struct Tally {
    int cases = 0, uncertain = 0, accepted = 0, branched = 0;
  };
  void compare(cuda::CudaSampler& sampler, const Case& c, Tally& tally, std::int32_t padding) {
    const JudgedPath expected = testing::reference_judge(c.tree);
    const DeviceVerdict verdict = judge(sampler, c, padding);
    ++tally.cases;
    if (!expected.certain) {
      ++tally.uncertain;
      return;
    }
    tally.accepted += static_cast<int>(expected.rows.size());
    for (const std::int32_t row : expected.rows) {
      if (c.tree.rank[index_of(row)] > 0) ++tally.branched;
    }
    ASSERT_EQ(verdict.rows, expected.rows) << c.target_vocab << ", case " << tally.cases;
    ASSERT_EQ(verdict.bonus, expected.bonus) << c.target_vocab << ", case " << tally.cases;
  }

  std::mt19937_64 random_{21};
};

struct Vocabularies {
  std::int32_t target, draft;
  int cases;
};

TEST_F(SamplerJudge, FollowsTheHostsRules) {
  for (const AcceptanceRule rule :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    Tally tally;
    for (const Vocabularies& v : {Vocabularies{5, 5, 200},
                                  {33, 33, 200},
                                  {100, 80, 100},
                                  {80, 100, 100},
                                  {1003, 1003, 60},
                                  {4096, 4100, 20},
                                  {32003, 32000, 4}}) {
      const auto sampler = make_sampler(v.target, v.draft, most_rows, most_rows);
      for (int i = 0; i < v.cases; ++i) {
        Case c = make_case(*sampler, v.target, v.draft, random_params(rule), rule);
        if (i % 2 == 1) propose_some(c);
        compare(*sampler, c, tally, static_cast<std::int32_t>(random_() % 9));
        if (HasFatalFailure()) return;
      }
    }
    std::cout << "rule " << static_cast<int>(rule) << ": " << tally.cases << " trees, "
              << tally.uncertain << " passed over, " << tally.accepted << " tokens accepted, "
              << tally.branched << " of them after a rejected sibling\n";
    EXPECT_LT(tally.uncertain, tally.cases / 4);
    EXPECT_GT(tally.accepted, tally.cases / 4);
    EXPECT_GT(tally.branched, tally.cases / 20);
  }
}

// Each fault of judging changes verdicts that are certain. Few nodes, of even distributions:
// second and third siblings are often looked at.
TEST_F(SamplerJudge, PlantedFaultsDiffer) {
  constexpr std::int32_t vocab = 8;
  constexpr int trees = 1000, faults = static_cast<int>(DeviceFault::certain_stay);
  const auto sampler = make_sampler(vocab, vocab, most_rows, most_rows);
  int differing[faults + 1] = {};
  for (int i = 0; i < trees; ++i) {
    Case c = make_case(*sampler, vocab, vocab, {3.0}, AcceptanceRule::rejection, 8);
    if (i % 2 == 1) propose_some(c);
    const JudgedPath expected = testing::reference_judge(c.tree);
    if (!expected.certain) continue;
    for (int fault = 0; fault <= faults; ++fault) {
      sampler->plant(static_cast<DeviceFault>(fault));
      const DeviceVerdict verdict = judge(*sampler, c);
      differing[fault] += verdict.rows != expected.rows || verdict.bonus != expected.bonus ? 1 : 0;
    }
    sampler->plant(DeviceFault::none);
  }
  for (int fault = 0; fault <= faults; ++fault) {
    const bool of_judging = fault > static_cast<int>(DeviceFault::declared_is_not_sampled);
    std::cout << "fault " << fault << ": " << differing[fault] << " of " << trees
              << " verdicts differ\n";
    EXPECT_EQ(differing[fault] > 0, of_judging) << "fault " << fault;
  }
}

// A vocabulary of the size of large models', and one beyond a power of two.
TEST_F(SamplerJudge, LargeVocabularies) {
  Tally tally;
  for (const std::int32_t vocab : {128256, 262147}) {
    const auto sampler = make_sampler(vocab, vocab, most_rows, most_rows);
    for (const AcceptanceRule rule :
         {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      for (int i = 0; i < 3; ++i) {
        SamplingParams params;
        params.temperature = rule == AcceptanceRule::greedy ? 0.0 : 0.4;
        if (i == 1) params.top_k = 50;
        if (i == 2) params.repetition_penalty = 1.2;
        const Case c = make_case(*sampler, vocab, vocab, params, rule);
        compare(*sampler, c, tally, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::cout << tally.cases << " trees, " << tally.uncertain << " passed over\n";
  EXPECT_LT(tally.uncertain, tally.cases);
}

// The same tree gives the same verdict, however often, beside however many rows.
TEST_F(SamplerJudge, RepeatsItself) {
  const auto sampler = make_sampler(1003, 1003, most_rows, most_rows);
  for (const AcceptanceRule rule :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    const Case c = make_case(*sampler, 1003, 1003,
                             {rule == AcceptanceRule::greedy ? 0.0 : 0.9, 0, 0.95, 0.0, 1.1}, rule);
    const DeviceVerdict first = judge(*sampler, c);
    for (int i = 0; i < 200; ++i) {
      const DeviceVerdict again = judge(*sampler, c, i % 13);
      ASSERT_EQ(again.rows, first.rows) << i;
      ASSERT_EQ(again.bonus, first.bonus) << i;
    }
  }
}

// In place, and only where a token is seen.
TEST_F(SamplerJudge, PenaltyIsAppliedToTheLogits) {
  constexpr std::int32_t vocab = 77;
  const auto sampler = make_sampler(vocab, vocab, most_rows, most_rows);
  const Case c =
      make_case(*sampler, vocab, vocab, {1.0, 0, 1.0, 0.0, 1.7}, AcceptanceRule::rejection);
  const PenaltyText text = text_of(c);
  const testing::OneTree batch{{c.tree.key, c.params, c.tree.rule, &text},
                               c.tree.token,
                               c.tree.parent,
                               c.tree.depth,
                               c.tree.rank,
                               c.store};
  stage_judge(*sampler, batch);
  transfers_->send();
  const GuardedArray<float> logits(c.target_logits);
  const std::size_t rows = c.tree.token.size();
  sampler->judge(logits.data(), static_cast<std::int32_t>(rows));
  DeviceVerdict verdict;
  sampler->collect_verdicts({&verdict, 1});
  const std::vector<float> after = logits.download();
  for (std::size_t r = 0; r < rows; ++r) {
    const std::vector<bool> seen = seen_at(c, static_cast<std::int32_t>(r));
    for (std::size_t t = 0; t < vocab; ++t) {
      const float before = c.target_logits[r * vocab + t];
      if (std::isnan(before)) continue;
      const float penalised = before > 0.0f ? before / 1.7f : before * 1.7f;
      ASSERT_EQ(after[r * vocab + t], seen[t] ? penalised : before) << r << ", " << t;
    }
  }
}

TEST_F(SamplerJudge, RefusesBrokenTrees) {
  const auto sampler = make_sampler(10, 10, 4, 4);
  const std::vector<float> logits(40, 0.5f);
  const auto stage = [&](std::vector<TokenId> token, std::vector<std::int32_t> parent,
                         std::vector<std::int32_t> rank, std::vector<std::int32_t> store) {
    const std::vector<std::int32_t> depth(token.size(), 0);
    testing::OneTree batch;
    batch.params.temperature = 1.0;
    batch.token = token;
    batch.parent = parent;
    batch.depth = depth;
    batch.rank = rank;
    batch.store = store;
    stage_judge(*sampler, batch);
    transfers_->send();
  };
  EXPECT_NO_THROW(stage({1, 2}, {-1, 0}, {0, 0}, {0, -1}));
  EXPECT_THROW(stage({}, {}, {}, {}), Error);
  EXPECT_THROW(stage({1, 10}, {-1, 0}, {0, 0}, {0, -1}), Error);  // token
  EXPECT_THROW(stage({1, 2}, {-1, 0}, {0, 0}, {-1, -1}), Error);  // no D
  EXPECT_THROW(stage({1, 2}, {-1, 0}, {0, 0}, {4, -1}), Error);   // store
  EXPECT_THROW(stage({1, 2, 3, 4, 5}, {-1, 0, 1, 2, 3}, {0, 0, 0, 0, 0}, {0, 1, 2, 3, -1}), Error);
}

// As on the host, only a row that is reached is looked at.
TEST_F(SamplerJudge, ReportsAReachedRowWithoutFiniteLogit) {
  const auto sampler = make_sampler(4, 4, 4, 4);
  const std::vector<TokenId> token{0, 1, 2};
  const std::vector<std::int32_t> parent{-1, 0, 0}, depth{0, 1, 1}, rank{0, 0, 1}, store{0, -1, -1};
  testing::OneTree batch;
  batch.rule = AcceptanceRule::greedy;
  batch.token = token;
  batch.parent = parent;
  batch.depth = depth;
  batch.rank = rank;
  batch.store = store;
  for (const bool reached : {false, true}) {
    const float peak = reached ? 5.0f : 0.0f;
    const std::vector<float> rows{0, 1, peak,      0,         0,         0,
                                  0, 9, -infinity, -infinity, -infinity, -infinity};
    const GuardedArray<float> logits(rows);
    stage_judge(*sampler, batch);
    transfers_->send();
    sampler->judge(logits.data(), 3);
    DeviceVerdict verdict;
    if (reached) {
      EXPECT_THROW(sampler->collect_verdicts({&verdict, 1}), Error);
    } else {
      sampler->collect_verdicts({&verdict, 1});
      EXPECT_EQ(verdict.rows, std::vector<std::int32_t>{1});
      EXPECT_EQ(verdict.bonus, 3);
    }
  }
}

}  // namespace
}  // namespace coppice::sampler_judge_test
