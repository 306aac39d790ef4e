// Ways of cutting one layer's attention into work items, as explicit lists: the papers'
// comparison. One kernel (item_kernel.h) runs them all, so that times differ by the cut alone.
//
//   flatten     equal chunks of the flattened tokens, each with all queries (DeFT-Flatten)
//   node        one group per tree node: its tokens, the queries that see them (DeFT-Node)
//   node-chunk  nodes, long ones cut evenly (DeFT-Node-Chunk)
//   radix       one query with all tokens of its path, cut evenly (flash-decoding over paged,
//               shared KV: nothing is shared in reading)
//   blocks      row tiles, each with the KV tiles in which its mask is not empty
//
// A node is the whole prefix, or a maximal run of tail tokens of which each is seen by the same
// queries as the one before, or by all but the first of them (a chain without branches).
#pragma once

#include <cstdint>
#include <vector>

#include "workload.h"

namespace coppice::bench {

/// Queries [.., ..) of a group are packed with the heads of a KV head's group into rows: row
/// q * group + g is query q and head kv_head * group + g. An item is one KV head, up to a row
/// tile's rows and a range of the token list.
struct Item {
  std::int32_t kv_head = 0;
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
  std::int32_t token_begin = 0;  ///< in ItemPlan::slots
  std::int32_t token_end = 0;
  std::int32_t first_masked = 0;  ///< tokens before it are seen by all of the item's queries
  /// The masks of tokens [first_masked, token_end) are ItemPlan::masks from here on.
  std::int32_t masks = 0;
  /// The partial result of query q is row q + partial_shift of the partial results.
  std::int32_t partial_shift = 0;
};

inline constexpr std::int32_t narrow_item_rows = 16;
inline constexpr std::int32_t wide_item_rows = 64;

struct ItemPlan {
  AttentionShape shape;
  std::int32_t rows = 0;
  std::int32_t tile_rows = wide_item_rows;
  std::vector<KvSlot> slots;
  /// Bit i: query row_begin / group + i of the item sees the token.
  std::vector<std::uint64_t> masks;
  std::vector<Item> items;
  std::int32_t partial_rows = 0;  ///< partial results per head
  /// Partials of query q: partials[partials_begin[q] .. partials_begin[q + 1]).
  std::vector<std::int32_t> partials_begin;
  std::vector<std::int32_t> partials;
  /// Every query has one partial result, which is the output.
  bool direct = false;
  /// KV bytes if a group reads each of its tokens once for all its queries (the papers' count),
  /// and as the kernel's blocks read them, once per row tile (mostly from the cache).
  double group_kv_bytes = 0.0;
  double block_kv_bytes = 0.0;

  std::int32_t group() const { return shape.heads / shape.kv_heads; }
};

/// Tokens of the longest item of a plan; 0: uncut.
using CutLength = std::int32_t;

ItemPlan plan_flatten(const Workload& work, CutLength cut);
ItemPlan plan_nodes(const Workload& work, CutLength cut);  ///< 0: DeFT-Node, else DeFT-Node-Chunk
ItemPlan plan_radix(const Workload& work, CutLength cut);
/// Takes any order; the visibility matrix is all it looks at.
ItemPlan plan_blocks(const Workload& work, CutLength cut);

/// Tokens of a KV tile in plan_blocks().
inline constexpr std::int32_t block_tokens = 64;

}  // namespace coppice::bench
