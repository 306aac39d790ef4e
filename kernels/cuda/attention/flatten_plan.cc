#include "kernels/cuda/attention/flatten_plan.h"

#include <algorithm>

#include "kernels/cuda/attention/range_plan.h"

namespace coppice {
namespace {

// Costs in KV tokens of one item's time. What an item costs besides its tokens (queries in,
// results out), what joining costs, and the share of it that grows with the chunks.
constexpr std::int64_t item_cost = 64;
constexpr std::int64_t join_cost = 64;
constexpr std::int64_t chunks_joined_per_token = 4;

// From more packed rows on ranges take less time than items; from more queries on where up to four
// heads share keys (measured on an H200 with groups of one and four).
constexpr std::int32_t most_item_rows = 32;
constexpr std::int32_t most_item_queries = 16;
constexpr std::int32_t most_sharing_heads = 4;
// Over more KV tokens, times KV heads, ranges take less time than items even for few rows
// (measured on an H200).
constexpr std::int64_t most_item_tokens = 48 * 1024;
// Likewise for more rows than `most_item_rows` (of 9 to 14 queries of four heads each over 15k to
// 47k, none took less time by items; fewer tokens were not measured).
constexpr std::int64_t most_item_tokens_of_many = 12 * 1024;

/// Items of a pass that is cut into several chunks: at most this many.
std::int64_t item_limit(std::int32_t tile_rows, const ResidentBlocks& blocks) {
  return std::int64_t{max_item_waves} * blocks.of(tile_rows);
}

}  // namespace

AttentionKernel attention_kernel_for(const AttentionShape& shape, std::int32_t padded_rows,
                                     std::int32_t tokens, const ResidentBlocks& blocks) {
  if (blocks.range_tiles != RangeTiles{} && blocks.ranges != 0) return AttentionKernel::ranges;
  const std::int32_t group = shape.heads / shape.kv_heads;
  if (blocks.ranges == 0) return AttentionKernel::items;
  const bool few_queries = padded_rows <= most_item_queries && group <= most_sharing_heads;
  const bool few_rows = padded_rows * group <= most_item_rows;
  const std::int64_t most_tokens = few_rows ? most_item_tokens : most_item_tokens_of_many;
  const bool few_tokens = std::int64_t{tokens} * shape.kv_heads <= most_tokens;
  return (few_rows || few_queries) && few_tokens ? AttentionKernel::items : AttentionKernel::ranges;
}

FlattenPlan make_flatten_plan(const AttentionShape& shape, std::int32_t rows,
                              std::int32_t padded_rows, std::int32_t prefix, std::int32_t tail,
                              const ResidentBlocks& blocks, std::int32_t longest) {
  FlattenPlan plan;
  plan.rows = rows;
  plan.kv_heads = shape.kv_heads;
  plan.group = shape.heads / shape.kv_heads;
  plan.tile_rows = row_tile_for(padded_rows, plan.group);
  plan.prefix = prefix;
  plan.tail = tail;
  const std::int64_t tokens = std::max<std::int64_t>(1, std::int64_t{prefix} + tail);
  const std::int64_t resident = blocks.of(plan.tile_rows);
  const std::int64_t items_per_chunk =
      std::max<std::int64_t>(1, std::int64_t{plan.kv_heads} * plan.row_tiles());
  std::int64_t least_cost = -1;
  const auto consider = [&](std::int64_t most_chunks) {
    const std::int64_t length = ceil_div(ceil_div(tokens, most_chunks), chunk_step) * chunk_step;
    const std::int64_t chunks = ceil_div(tokens, length);
    const std::int64_t waves = ceil_div(items_per_chunk * chunks, resident);
    // Items that see nothing of their chunk end at once. But blocks take items in turn, and it may
    // be always the same ones that do: with several chunks nothing is counted on that.
    const std::int64_t taken = chunks == 1 && longest >= 0 ? longest : length;
    const std::int64_t cost = waves * (taken + item_cost) +
                              (chunks > 1 ? join_cost + chunks / chunks_joined_per_token : 0);
    if (least_cost >= 0 && cost >= least_cost) return;
    least_cost = cost;
    plan.chunk_tokens = static_cast<std::int32_t>(length);
    plan.chunks = static_cast<std::int32_t>(chunks);
  };
  consider(1);
  // Within a number of waves the shortest chunks win.
  const std::int64_t limit = item_limit(plan.tile_rows, blocks);
  for (std::int64_t items = resident; items <= limit; items += resident) {
    if (items >= 2 * items_per_chunk) consider(items / items_per_chunk);
  }
  return plan;
}

std::int32_t longest_span(std::span<const KvSegment> tail, std::int32_t prefix, std::int32_t rows,
                          std::int32_t group, std::int32_t tile_rows,
                          std::vector<IndexRange>& spans) {
  const std::int64_t tiles = ceil_div(std::int64_t{rows} * group, tile_rows);
  spans.assign(static_cast<std::size_t>(tiles), {0, prefix});
  std::int32_t at = prefix;
  for (const KvSegment& segment : tail) {
    const std::int32_t begin = at;
    at += static_cast<std::int32_t>(segment.slots.size());
    const IndexRange queries = intersection({segment.q_begin, segment.q_end}, {0, rows});
    if (queries.empty() || begin == at) continue;
    const std::int32_t last = (queries.end * group - 1) / tile_rows;
    for (std::int32_t tile = queries.begin * group / tile_rows; tile <= last; ++tile) {
      IndexRange& span = spans[static_cast<std::size_t>(tile)];
      span = {span.empty() ? begin : span.begin, at};
    }
  }
  std::int32_t longest = 0;
  for (const IndexRange& span : spans) longest = std::max(longest, span.end - span.begin);
  return longest;
}

PartialCapacity partial_capacity(const PassLimits& limits, const ResidentBlocks& blocks) {
  const std::int64_t most_chunks =
      std::max<std::int64_t>(1, ceil_div(limits.kv_tokens, chunk_step));
  const std::int64_t by_limits = std::int64_t{limits.rows} * limits.attention.heads * most_chunks;
  const std::int64_t by_items = std::max(item_limit(narrow_row_tile, blocks) * narrow_row_tile,
                                         item_limit(wide_row_tile, blocks) * wide_row_tile);
  const std::int64_t items = std::min(by_limits, by_items);
  const std::int64_t ranges = std::int64_t{2} * blocks.ranges * range_wide_tile;
  const std::int32_t head_dim = limits.attention.head_dim;
  return {std::max(items, ceil_div(ranges * range_head_dim(head_dim), 2 * head_dim)),
          std::max(items, 2 * ranges)};
}

}  // namespace coppice
