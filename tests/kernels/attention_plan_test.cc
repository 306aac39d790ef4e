#include "kernels/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/tree_order.h"
#include "kernels/random_values.h"
#include "reference/all_trees.h"
#include "reference/segments.h"

namespace coppice {
namespace {

using testing::segments_of;

std::vector<VisibleKv> tree_kv(const TokenTree& tree, std::int32_t prefix) {
  TreeOrder order;
  order.assign(tree);
  std::vector<VisibleKv> kv;
  for (std::int32_t t = 0; t < prefix; ++t) kv.push_back({t, 0, order.rows(), t});
  for (std::int32_t r = 0; r < order.rows(); ++r) {
    const auto row = static_cast<std::size_t>(r);
    const auto node = static_cast<std::size_t>(order.node_of_row[row]);
    kv.push_back({prefix + r, r, r + order.subtree_rows[row], prefix + tree.depth[node]});
  }
  return kv;
}

/// Throws Error(failure) that names the first broken invariant.
void validate(const AttentionPlan& plan) {
  const auto& queries = plan.queries;
  const auto& [slot, q_begin, q_end, position] =
      std::tie(plan.slot, plan.q_begin, plan.q_end, plan.position);
  const auto& [texts, chunks, reduce_begin, partial_of, partials] =
      std::tie(plan.texts, plan.chunks, plan.reduce_begin, plan.partial_of, plan.partials);
  const auto fail = [](const auto&... what) { throw_failure(cat("attention plan: ", what...)); };
  const std::size_t tokens = slot.size();
  if (q_begin.size() != tokens || q_end.size() != tokens || position.size() != tokens) {
    fail(tokens, " slots, ", q_begin.size(), " interval begins, ", q_end.size(), " ends, ",
         position.size(), " positions");
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    if (q_begin[t] < 0 || q_begin[t] >= q_end[t] || q_end[t] > queries) {
      fail("token ", t, " is seen by queries [", q_begin[t], ", ", q_end[t], ") of ", queries);
    }
  }
  std::int32_t next_chunk = 0, next_query = 0;
  for (const AttentionPlan::Text& text : texts) {
    if (text.chunk_begin != next_chunk || text.q_begin < next_query) {
      fail("a text begins at chunk ", text.chunk_begin, " and query ", text.q_begin);
    }
    next_chunk = text.chunk_end;
    next_query = text.q_end;
    for (std::int32_t c = text.chunk_begin; c < text.chunk_end; ++c) {
      const AttentionPlan::Chunk& chunk = chunks[static_cast<std::size_t>(c)];
      if (chunk.q_begin < text.q_begin || chunk.q_end > text.q_end) {
        fail("chunk ", c, " has queries of two texts");
      }
    }
  }
  if (next_chunk != std::ssize(chunks)) fail("texts end at chunk ", next_chunk);
  std::int32_t next_token = 0;
  std::int32_t next_partial = 0;
  std::vector<std::vector<std::int32_t>> expected(static_cast<std::size_t>(queries));
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const AttentionPlan::Chunk& chunk = chunks[c];
    if (chunk.kv_begin != next_token || chunk.kv_end <= chunk.kv_begin ||
        static_cast<std::size_t>(chunk.kv_end) > tokens) {
      fail("chunk ", c, " holds tokens [", chunk.kv_begin, ", ", chunk.kv_end, "), expected from ",
           next_token, " of ", tokens);
    }
    next_token = chunk.kv_end;
    if (chunk.q_begin < 0 || chunk.q_end > queries || chunk.q_begin >= chunk.q_end) {
      fail("chunk ", c, " has queries [", chunk.q_begin, ", ", chunk.q_end, ") of ", queries);
    }
    std::vector<bool> seen(static_cast<std::size_t>(chunk.q_end - chunk.q_begin), false);
    bool full = true;
    for (std::int32_t token = chunk.kv_begin; token < chunk.kv_end; ++token) {
      const auto t = static_cast<std::size_t>(token);
      if (q_begin[t] < chunk.q_begin || q_end[t] > chunk.q_end) {
        fail("chunk ", c, " leaves out queries that see token ", t);
      }
      full = full && q_begin[t] == chunk.q_begin && q_end[t] == chunk.q_end;
      for (std::int32_t q = q_begin[t]; q < q_end[t]; ++q) {
        seen[static_cast<std::size_t>(q - chunk.q_begin)] = true;
      }
    }
    if (full != chunk.full)
      fail("chunk ", c, full ? " is full, says masked" : " is masked, says full");
    if (std::find(seen.begin(), seen.end(), false) != seen.end()) {
      fail("chunk ", c, " has a query that sees none of its tokens");
    }
    if (chunk.partial != next_partial) {
      fail("chunk ", c, " begins at partial ", chunk.partial, ", expected ", next_partial);
    }
    for (std::int32_t q = chunk.q_begin; q < chunk.q_end; ++q) {
      expected[static_cast<std::size_t>(q)].push_back(next_partial++);
    }
  }
  if (static_cast<std::size_t>(next_token) != tokens) {
    fail("chunks end at token ", next_token, " of ", tokens);
  }
  if (partials != next_partial || partial_of.size() != static_cast<std::size_t>(partials)) {
    fail(partials, " partials, ", partial_of.size(), " in the lists, expected ", next_partial);
  }
  if (reduce_begin.size() != static_cast<std::size_t>(queries) + 1 || reduce_begin[0] != 0) {
    fail("reduction list has ", reduce_begin.size(), " offsets for ", queries, " queries");
  }
  for (std::size_t q = 0; q < expected.size(); ++q) {
    const auto count = static_cast<std::size_t>(reduce_begin[q + 1] - reduce_begin[q]);
    if (count == 0 || count != expected[q].size() ||
        !std::equal(expected[q].begin(), expected[q].end(), partial_of.begin() + reduce_begin[q])) {
      fail("query ", q, " reduces ", count, " partials, not the ", expected[q].size(),
           " of its chunks in order");
    }
  }
}

/// Every visible (query, slot) pair lies in exactly one chunk, and that chunk's partial result
/// is in the query's reduction list exactly once.
void expect_covers(const AttentionPlan& plan, const std::vector<VisibleKv>& kv,
                   std::int32_t chunk_tokens = std::numeric_limits<std::int32_t>::max()) {
  ASSERT_NO_THROW(validate(plan));
  std::multiset<std::pair<std::int32_t, KvSlot>> expected, planned;
  for (const VisibleKv& token : kv) {
    for (std::int32_t q = token.q_begin; q < token.q_end; ++q) expected.insert({q, token.slot});
  }
  std::map<std::int32_t, std::int32_t> query_of_partial;
  for (const AttentionPlan::Chunk& chunk : plan.chunks) {
    EXPECT_LE(chunk.kv_end - chunk.kv_begin, chunk_tokens);
    for (std::int32_t q = chunk.q_begin; q < chunk.q_end; ++q) {
      query_of_partial[chunk.partial + q - chunk.q_begin] = q;
    }
    for (std::int32_t token = chunk.kv_begin; token < chunk.kv_end; ++token) {
      const auto t = static_cast<std::size_t>(token);
      for (std::int32_t q = plan.q_begin[t]; q < plan.q_end[t]; ++q) {
        planned.insert({q, plan.slot[t]});
      }
    }
  }
  EXPECT_EQ(planned, expected);
  EXPECT_EQ(static_cast<std::int32_t>(query_of_partial.size()), plan.partials);
  std::set<std::int32_t> reduced;
  for (std::int32_t q = 0; q < plan.queries; ++q) {
    const auto i = static_cast<std::size_t>(q);
    for (std::int32_t at = plan.reduce_begin[i]; at < plan.reduce_begin[i + 1]; ++at) {
      const std::int32_t partial = plan.partial_of[static_cast<std::size_t>(at)];
      EXPECT_EQ(query_of_partial.at(partial), q);
      EXPECT_TRUE(reduced.insert(partial).second);
    }
  }
  EXPECT_EQ(static_cast<std::int32_t>(reduced.size()), plan.partials);
}

/// Expects of flatten, where intervals are a tree's: each query has all tokens of a group in one
/// chunk, and its chunks in order.
void expect_grouped(const AttentionPlan& plan) {
  for (std::int32_t q = 0; q < plan.queries; ++q) {
    std::int32_t last_group = -1, last_position = -1;
    for (const AttentionPlan::Chunk& chunk : plan.chunks) {
      std::int32_t group = -1;
      for (std::int32_t token = chunk.kv_begin; token < chunk.kv_end; ++token) {
        const auto t = static_cast<std::size_t>(token);
        if (q < plan.q_begin[t] || q >= plan.q_end[t]) continue;
        ASSERT_TRUE(group == -1 || group == plan.position[t] / position_group);
        group = plan.position[t] / position_group;
        ASSERT_GT(plan.position[t], last_position);
        last_position = plan.position[t];
      }
      if (group == -1) continue;
      ASSERT_GT(group, last_group);
      last_group = group;
    }
  }
}

TEST(AttentionPlan, EveryTreeOfUpToSevenNodes) {
  AttentionPlan plan;
  for (std::int32_t nodes = 1; nodes <= 7; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      for (const std::int32_t prefix : {0, 3, position_group - 2, position_group}) {
        const auto kv = tree_kv(tree, prefix);
        plan.assign(segments_of(kv), nodes, AttentionDivision::flatten);
        expect_covers(plan, kv);
        expect_grouped(plan);
      }
    });
  }
}

TEST(AttentionPlan, RandomTrees) {
  std::mt19937 random(2);
  const auto draw = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  AttentionPlan plan;
  for (int round = 0; round < 300; ++round) {
    const auto tree = testing::random_tree(draw(1, 400), draw(0, 1) == 0 ? 1 : 60, random);
    const auto kv = tree_kv(tree, draw(0, 2) == 0 ? 0 : draw(1, 900));
    plan.assign(segments_of(kv), tree.nodes(), AttentionDivision::flatten);
    expect_covers(plan, kv);
    expect_grouped(plan);
  }
}

TEST(AttentionPlan, RandomIntervals) {
  std::mt19937 random(1);
  const auto draw = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  AttentionPlan plan;
  for (int round = 0; round < 3000; ++round) {
    const std::int32_t queries = draw(1, 24);
    std::vector<VisibleKv> kv;
    const std::int32_t runs = draw(0, 12);
    for (std::int32_t run = 0; run < runs; ++run) {
      std::int32_t begin = draw(0, queries), end = draw(0, queries);
      if (begin > end) std::swap(begin, end);
      for (std::int32_t i = draw(1, 20); i > 0; --i) {
        kv.push_back({draw(0, 999), begin, end, draw(0, 300)});
      }
    }
    for (std::int32_t q = 0; q < queries; ++q) kv.push_back({1000 + q, q, q + 1, draw(0, 300)});
    std::stable_sort(kv.begin(), kv.end(),
                     [](const VisibleKv& a, const VisibleKv& b) { return a.q_begin < b.q_begin; });
    plan.assign(segments_of(kv), queries, AttentionDivision::flatten);
    expect_covers(plan, kv);
  }
}

constexpr AttentionDivision other_divisions[] = {
    AttentionDivision::node, AttentionDivision::node_chunk, AttentionDivision::subtree};

TEST(AttentionPlan, OtherDivisionsCoverEveryTree) {
  AttentionPlan plan;
  for (std::int32_t nodes = 1; nodes <= 6; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      for (const std::int32_t prefix : {0, 3, 2 * longest_group + 5}) {
        const auto kv = tree_kv(tree, prefix);
        for (const AttentionDivision division : other_divisions) {
          plan.assign(segments_of(kv), nodes, division);
          expect_covers(plan, kv,
                        division == AttentionDivision::node ? prefix + nodes : longest_group);
        }
      }
    });
  }
}

// A prompt of 1200 and two chains, of which the second has a fork.
TEST(AttentionPlan, OtherDivisionsByHand) {
  std::vector<VisibleKv> kv;
  for (std::int32_t t = 0; t < 1200; ++t) kv.push_back({t, 0, 7});
  const std::pair<std::int32_t, std::int32_t> rows[] = {{0, 3}, {1, 3}, {2, 3}, {3, 7},
                                                        {4, 7}, {5, 6}, {6, 7}};
  for (const auto& [begin, end] : rows) kv.push_back({2000 + begin, begin, end});
  using Chunks = std::vector<std::array<std::int32_t, 4>>;
  const auto chunks_by = [&](AttentionDivision division) {
    AttentionPlan plan;
    plan.assign(segments_of(kv), 7, division);
    Chunks chunks;
    for (const auto& c : plan.chunks) chunks.push_back({c.kv_begin, c.kv_end, c.q_begin, c.q_end});
    return chunks;
  };
  const Chunks below = {
      {1200, 1203, 0, 3}, {1203, 1205, 3, 7}, {1205, 1206, 5, 6}, {1206, 1207, 6, 7}};
  Chunks nodes = {{0, 1200, 0, 7}}, cut = {{0, 400, 0, 7}, {400, 800, 0, 7}, {800, 1200, 0, 7}};
  nodes.insert(nodes.end(), below.begin(), below.end());
  cut.insert(cut.end(), below.begin(), below.end());
  EXPECT_EQ(chunks_by(AttentionDivision::node), nodes);
  EXPECT_EQ(chunks_by(AttentionDivision::node_chunk), cut);
  EXPECT_EQ(chunks_by(AttentionDivision::subtree),
            (Chunks{{0, 402, 0, 7}, {402, 804, 0, 7}, {804, 1207, 0, 7}}));
}

TEST(AttentionPlan, CutsByPosition) {
  AttentionPlan plan;
  const auto kv = tree_kv(testing::tree_with_parents({-1, 0, 0}), 2 * position_group - 1);
  plan.assign(segments_of(kv), 3, AttentionDivision::flatten);
  ASSERT_EQ(plan.chunks.size(), 3u);  // the root ends the second group, its leaves are the third
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(plan.chunks[c].kv_end - plan.chunks[c].kv_begin, position_group);
    EXPECT_TRUE(plan.chunks[c].full);
  }
  EXPECT_FALSE(plan.chunks[2].full);
}

TEST(AttentionPlan, LongRunsOfDisjointQueriesDoNotShareChunks) {
  std::vector<VisibleKv> kv;
  for (std::int32_t t = 0; t < 40; ++t) kv.push_back({t, 0, 2, t});
  for (std::int32_t t = 0; t < 40; ++t) kv.push_back({40 + t, 2, 4, t});
  kv.push_back({80, 2, 4, 40});
  AttentionPlan plan;
  plan.assign(segments_of(kv), 4, AttentionDivision::flatten);
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_TRUE(plan.chunks[0].full && plan.chunks[1].full);
}

// Whatever else is in the pass: the same chunks, moved to the text's place, and in the same order.
TEST(AttentionPlan, OfATextDoesNotDependOnOthers) {
  std::mt19937 random(4);
  const auto draw = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    AttentionPlan all;
    std::vector<AttentionPlan> alone(static_cast<std::size_t>(draw(1, 6)));
    std::vector<VisibleKv> kv;
    std::int32_t rows = 0;
    for (AttentionPlan& plan : alone) {
      const auto tree = testing::random_tree(draw(1, 60), draw(0, 1) == 0 ? 1 : 60, random);
      std::vector<VisibleKv> text = tree_kv(tree, draw(0, 2) == 0 ? 0 : draw(1, 900));
      plan.assign(segments_of(text), tree.nodes(), AttentionDivision::flatten);
      for (const VisibleKv& token : text) {
        kv.push_back({token.slot, token.q_begin + rows, token.q_end + rows, token.position});
      }
      rows += tree.nodes();
    }
    all.assign(segments_of(kv), rows, AttentionDivision::flatten);
    ASSERT_NO_THROW(validate(all));
    ASSERT_EQ(all.texts.size(), alone.size());
    std::size_t chunk = 0;
    std::int32_t row = 0, token = 0;
    for (const AttentionPlan& plan : alone) {
      for (const AttentionPlan::Chunk& wanted : plan.chunks) {
        ASSERT_LT(chunk, all.chunks.size());
        const AttentionPlan::Chunk& found = all.chunks[chunk++];
        EXPECT_EQ(found.kv_begin, wanted.kv_begin + token);
        EXPECT_EQ(found.kv_end, wanted.kv_end + token);
        EXPECT_EQ(found.q_begin, wanted.q_begin + row);
        EXPECT_EQ(found.q_end, wanted.q_end + row);
        EXPECT_EQ(found.full, wanted.full);
      }
      row += plan.queries;
      token += static_cast<std::int32_t>(plan.slot.size());
    }
    EXPECT_EQ(chunk, all.chunks.size());
  }
}

TEST(AttentionPlan, RefusesWhatItCannotPlan) {
  AttentionPlan plan;
  const std::vector<VisibleKv> outside = {{0, 0, 3}};
  EXPECT_THROW(plan.assign(segments_of(outside), 2, AttentionDivision::flatten), Error);
  const std::vector<VisibleKv> blind = {{0, 0, 1}};
  EXPECT_THROW(plan.assign(segments_of(blind), 2, AttentionDivision::flatten), Error);
  plan.assign({}, 0, AttentionDivision::flatten);
  EXPECT_NO_THROW(validate(plan));
}

TEST(AttentionPlan, ValidateNamesPlantedFaults) {
  AttentionPlan good;
  const auto kv = tree_kv(testing::tree_with_parents({-1, 0, 0, 1}), 140);
  good.assign(segments_of(kv), 4, AttentionDivision::flatten);
  ASSERT_NO_THROW(validate(good));
  const auto broken = [&](auto break_it) {
    AttentionPlan plan = good;
    break_it(plan);
    EXPECT_THROW(validate(plan), Error);
  };
  broken([](AttentionPlan& p) { p.chunks.back().full = !p.chunks.back().full; });
  broken([](AttentionPlan& p) { p.chunks.pop_back(); });
  broken([](AttentionPlan& p) { ++p.chunks[1].kv_begin; });
  broken([](AttentionPlan& p) { ++p.chunks[1].partial; });
  broken([](AttentionPlan& p) { ++p.chunks[0].q_begin; });
  broken([](AttentionPlan& p) { std::swap(p.partial_of.front(), p.partial_of.back()); });
  broken([](AttentionPlan& p) { ++p.reduce_begin[1]; });
  broken([](AttentionPlan& p) { p.q_end[0] = p.q_begin[0]; });
}

}  // namespace
}  // namespace coppice
