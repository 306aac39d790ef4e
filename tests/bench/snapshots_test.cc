// Trees of texts at moments of their growth, as the attention bench has them.
#include "snapshots.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "workload.h"
#include "workload/templates.h"

namespace coppice::bench {
namespace {

/// A prompt of 30 tokens; two branches of 10 and 20, the first with two behind it.
workload::TreeTemplate small_tree() {
  return {"template 0",
          "",
          {{-1, 30, 1, 0}, {0, 10, 1, 10}, {0, 20, 1, 20}, {1, 12, 11, 22}, {1, 5, 11, 15}}};
}

TEST(Snapshots, HaveARowForEachBranchThatIsWritten) {
  const std::vector<Cell> cells = snapshot_cells(small_tree(), "small", 2);
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[0].name(), "forest/32/32/small@11/t3");
  EXPECT_EQ(cells[1].name(), "forest/32/32/small@22/t1");
  EXPECT_EQ(cells[2].name(), "forest/32/8/small@11/t3");
  // In iteration 11 node 1 is whole, its children have just begun, and node 2 has 10 of its tokens.
  const Cell& cell = cells[2];
  ASSERT_EQ(cell.nodes.size(), 3u);
  const auto expect_node = [&](std::size_t at, std::int32_t begin, std::int32_t end,
                               std::int32_t tokens) {
    EXPECT_EQ(cell.nodes[at].rows.begin, begin) << at;
    EXPECT_EQ(cell.nodes[at].rows.end, end) << at;
    EXPECT_EQ(cell.nodes[at].tokens, tokens) << at;
  };
  expect_node(0, 0, 3, 30);
  expect_node(1, 0, 2, 10);
  expect_node(2, 2, 3, 10);
  EXPECT_EQ(cell.shared(), 30);
  EXPECT_EQ(cell.former(), 50);
  EXPECT_EQ(cell.tail(), 23);
  const Cost cost = cost_of(cell);
  EXPECT_EQ(cost.bytes, 2.0 * 128 * (2 * 53 * 8 + 2 * 3 * 32));
  EXPECT_EQ(cost.flops, 4.0 * 32 * 128 * (3 * 30 + 2 * 10 + 1 * 10));
  // All of the last one is a single branch's.
  EXPECT_EQ(cells[3].shared(), 30 + 10 + 11);
}

TEST(Snapshots, RowsSeeTheirPathsAndTheirOwnTokens) {
  const Cell cell = snapshot_cells(small_tree(), "small", 2)[2];
  const Workload work = make_workload(cell, 3);
  ASSERT_EQ(work.prefix.size(), 30u);
  ASSERT_EQ(work.tail.size(), 23u);
  // Node 1, the tokens of its two rows, node 2 and that of its row.
  const auto expect = [&](std::size_t begin, std::size_t count, std::int32_t q_begin,
                          std::int32_t q_end, std::int32_t position) {
    for (std::size_t i = 0; i < count; ++i) {
      const VisibleKv& token = work.tail[begin + i];
      EXPECT_EQ(token.q_begin, q_begin) << begin + i;
      EXPECT_EQ(token.q_end, q_end) << begin + i;
      EXPECT_EQ(token.position, position + static_cast<std::int32_t>(i)) << begin + i;
    }
  };
  expect(0, 10, 0, 2, 30);
  expect(10, 1, 0, 1, 40);
  expect(11, 1, 1, 2, 40);
  expect(12, 10, 2, 3, 30);
  expect(22, 1, 2, 3, 40);
  EXPECT_EQ(work.positions, (std::vector<std::int32_t>{40, 40, 40}));
  ASSERT_EQ(work.former.size(), 2u);
  EXPECT_EQ(work.former[1].begin, 12);
  EXPECT_EQ(work.former[1].end, 22);
  std::vector<KvSlot> slots = work.prefix;
  slots.insert(slots.end(), work.tail_slots.begin(), work.tail_slots.end());
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end()), slots.end());
}

/// A root with two children, the first with one of its own; three steps.
workload::SpeculationFile small_record() {
  const std::vector<RankPath> paths = {{0}, {1}, {0, 0}};
  return {TreeShape(paths), {{"record 0", "", {2, 3, 1}}}};
}

TEST(Snapshots, OfSpeculationAreItsTreeBehindWhatWasAccepted) {
  const std::vector<Cell> cells = snapshot_cells(small_record(), "small", 3);
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[0].name(), "forest/32/32/small@1/t4");
  EXPECT_EQ(cells[5].name(), "forest/32/8/small@3/t4");
  const auto prompt = static_cast<std::int32_t>(workload::recorded_prompt_tokens);
  EXPECT_EQ(cells[0].shared(), prompt);
  EXPECT_EQ(cells[1].shared(), prompt + 2);
  EXPECT_EQ(cells[5].shared(), prompt + 5);
  EXPECT_EQ(cells[5].tail(), 4);
  // More asked for than steps: each once.
  EXPECT_EQ(snapshot_cells(small_record(), "small", 10).size(), 6u);

  const Workload work = make_workload(cells[5], 3);
  EXPECT_EQ(work.prefix.size(), static_cast<std::size_t>(prompt + 5));
  ASSERT_EQ(work.tail.size(), 4u);
  // Depth-first: root, first child, its child, second child.
  constexpr std::int32_t ends[] = {4, 3, 3, 4}, depths[] = {0, 1, 2, 1};
  for (std::int32_t row = 0; row < 4; ++row) {
    const VisibleKv& token = work.tail[static_cast<std::size_t>(row)];
    EXPECT_EQ(token.q_begin, row);
    EXPECT_EQ(token.q_end, ends[row]);
    EXPECT_EQ(token.position, prompt + 5 + depths[row]);
    // Side by side, as a pass writes them.
    EXPECT_EQ(token.slot, work.tail.front().slot + row);
  }
}

TEST(Snapshots, OfAFileTakeItsFirstTemplateOrRecord) {
  const auto cells_of = [](const std::string& json) {
    return snapshot_cells(testing::TemplateFile(json).path(), 2);
  };
  const std::vector<Cell> records = cells_of(
      R"({"Tree_Structure": [[0], [0, 0]], "Records": [{"prompt": "a", "Accept_length": [1, 3]}]})");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[1].name(), "forest/32/32/templates@2/t3");
  EXPECT_EQ(records[1].shared(), workload::recorded_prompt_tokens + 1);
  const nlohmann::json list = nlohmann::json::array({testing::small_template()});
  const std::vector<Cell> reasoning = cells_of(list.dump());
  ASSERT_EQ(reasoning.size(), 4u);
  EXPECT_EQ(reasoning[1].name(), "forest/32/32/templates@30/t1");
  EXPECT_THROW(cells_of("[]"), Error);
  EXPECT_THROW(cells_of("3"), Error);
}

}  // namespace
}  // namespace coppice::bench
