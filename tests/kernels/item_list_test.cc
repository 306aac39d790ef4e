// Lists of a GPU's work items, run on the host.
#include "kernels/cuda/attention/item_list.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "kernels/random_values.h"
#include "kernels/range_rig.h"
#include "reference/segments.h"

namespace coppice {
namespace {

using testing::Tail;

/// Which (packed row, place) pairs of one KV head a list takes, how often, and whether each row
/// joins the partial results of its items, each once.
struct ListRun {
  std::map<std::pair<std::int32_t, std::int32_t>, int> taken;
  bool joined = true;
};

ListRun run_list(const std::vector<std::byte>& bytes, const std::vector<VisibleKv>& kv,
                 std::int32_t group) {
  const auto& list = *reinterpret_cast<const ItemListHead*>(bytes.data());
  ListRun result;
  std::map<std::int32_t, std::multiset<std::int32_t>> left;  // by packed row
  for (std::int32_t i = 0; i < list.items; ++i) {
    const ListedItem& item = list.item()[i];
    for (std::int32_t row = item.rows.begin; row < item.rows.end; ++row) {
      left[row].insert(row / group + item.partial_shift);
      for (std::int32_t at = item.tokens.begin; at < item.tokens.end; ++at) {
        const VisibleKv& token = kv[static_cast<std::size_t>(at)];
        const bool sees = row / group >= token.q_begin && row / group < token.q_end;
        if (token.slot >= 0 && sees) ++result.taken[{row, at}];
      }
    }
  }
  std::set<std::int32_t> numbers;
  for (const auto& [row, partials] : left) {
    const std::int32_t query = row / group;
    const std::multiset<std::int32_t> listed(list.partials() + list.begins()[query],
                                             list.partials() + list.begins()[query + 1]);
    result.joined = result.joined && listed == partials;
    if (row % group == 0) numbers.insert(listed.begin(), listed.end());
  }
  const std::int32_t all = list.begins()[list.queries];
  result.joined = result.joined && static_cast<std::int32_t>(numbers.size()) == all;
  return result;
}

std::map<std::pair<std::int32_t, std::int32_t>, int> seen_pairs(const std::vector<VisibleKv>& kv,
                                                                std::int32_t group) {
  std::map<std::pair<std::int32_t, std::int32_t>, int> pairs;
  for (std::size_t at = 0; at < kv.size(); ++at) {
    if (kv[at].slot < 0) continue;
    for (std::int32_t row = kv[at].q_begin * group; row < kv[at].q_end * group; ++row) {
      pairs[{row, static_cast<std::int32_t>(at)}] = 1;
    }
  }
  return pairs;
}

std::vector<std::byte> list_bytes(const ItemList& list) {
  std::vector<std::byte> bytes(list.bytes());
  list.write(bytes.data());
  return bytes;
}

TEST(ItemList, TakesWhatRowsSeeOnceAndJoinsIt) {
  std::mt19937 random(3);
  ItemList list;
  for (const Tail kind : {Tail::tree, Tail::causal, Tail::branches, Tail::texts}) {
    for (const std::int32_t rows : {1, 5, 23}) {
      for (const std::int32_t group : {1, 3, 4, 8}) {
        std::vector<VisibleKv> kv;
        for (std::int32_t at = 0; at < 700; ++at) {
          kv.push_back({random() % 9 == 0 ? no_slot : at, 0, rows});
        }
        const std::vector<VisibleKv> tail = testing::make_tail(kind, rows, random);
        kv.insert(kv.end(), tail.begin(), tail.end());
        kv.push_back({5, 0, 0});  // nobody's
        for (const auto division :
             {AttentionDivision::node, AttentionDivision::node_chunk, AttentionDivision::subtree}) {
          list.assign(testing::segments_of(kv), rows, group, division);
          std::vector<std::byte> bytes = list_bytes(list);
          const ListRun all = run_list(bytes, kv, group);
          ASSERT_EQ(all.taken, seen_pairs(kv, group)) << rows << " rows, group " << group;
          ASSERT_TRUE(all.joined) << rows << " rows, group " << group;
          for (const ListedItem& item : list.items()) {
            ASSERT_LE(item.rows.end - item.rows.begin, list.tile_rows());
          }
          // Faults: a token left out, and a partial result where another lies.
          auto& first = const_cast<ListedItem&>(
              reinterpret_cast<const ItemListHead*>(bytes.data())->item()[0]);
          ++first.tokens.begin;
          ASSERT_NE(run_list(bytes, kv, group).taken, seen_pairs(kv, group));
          ++first.partial_shift;
          ASSERT_FALSE(run_list(bytes, kv, group).joined);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coppice
