// DeFT-Flatten on a device: how one launch over a pass is cut into work items.
//
// The KV tokens of a pass are one flattened list, prefix before tail, cut into chunks of equal
// length. The query heads that share a KV head are packed into rows, packed row p being query
// p / group and head p % group of the KV head's group, and packed rows are cut into row tiles.
// A work item is one KV head, one row tile and one chunk. Where there are several chunks, an
// item leaves a partial result for every packed row, and these are joined per query and head.
//
// The row tile follows from the row count that a launch is made for, so that it can be fixed
// when the launch is recorded; all else is computed from values that lie in device memory. Host
// and device call the same functions.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/host_device.h"
#include "kernels/visible_kv.h"

namespace coppice {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

inline constexpr std::int32_t narrow_row_tile = 16;
inline constexpr std::int32_t wide_row_tile = 64;

/// Packed rows of a tile in launches for `padded_rows` rows.
COPPICE_HOST_DEVICE constexpr std::int32_t row_tile_for(std::int32_t padded_rows,
                                                        std::int32_t group) {
  return padded_rows * group <= narrow_row_tile ? narrow_row_tile : wide_row_tile;
}

/// A half-open interval of query rows or of flattened KV tokens; begin == end where empty.
struct IndexRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  COPPICE_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
};

COPPICE_HOST_DEVICE constexpr IndexRange intersection(IndexRange a, IndexRange b) {
  const IndexRange both{a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
  return both.empty() ? IndexRange{} : both;
}

/// The queries of `among` that see `token`.
COPPICE_HOST_DEVICE constexpr IndexRange queries_that_see(const VisibleKv& token,
                                                          IndexRange among) {
  return token.slot < 0 ? IndexRange{} : intersection({token.q_begin, token.q_end}, among);
}

struct FlattenItem {
  std::int32_t kv_head = 0;
  std::int32_t row_tile = 0;
  std::int32_t chunk = 0;
};

/// The cut of one pass. Products of its fields fit 32 bits: see max_item_waves.
struct FlattenPlan {
  std::int32_t rows = 0;   ///< real query rows; none is computed for padding
  std::int32_t group = 1;  ///< query heads per KV head
  std::int32_t kv_heads = 1;
  std::int32_t tile_rows = narrow_row_tile;  ///< packed rows of a row tile
  std::int32_t prefix = 0;                   ///< KV tokens that every row sees
  std::int32_t prefix_begin = 0;     ///< of the prefix's slots, those before that no row sees
  std::int32_t prefix_position = 0;  ///< of the prefix's first token
  std::int32_t tail = 0;             ///< further KV tokens
  std::int32_t chunk_tokens = 1;
  std::int32_t chunks = 1;  ///< chunks * chunk_tokens >= prefix + tail

  COPPICE_HOST_DEVICE constexpr std::int32_t heads() const { return group * kv_heads; }
  COPPICE_HOST_DEVICE constexpr std::int32_t packed_rows() const { return rows * group; }
  COPPICE_HOST_DEVICE constexpr std::int32_t row_tiles() const {
    return (packed_rows() + tile_rows - 1) / tile_rows;
  }
  COPPICE_HOST_DEVICE constexpr std::int32_t items() const {
    return kv_heads * row_tiles() * chunks;
  }
  /// Row tiles vary first: items that run side by side read the same keys and values.
  COPPICE_HOST_DEVICE constexpr FlattenItem item(std::int32_t index) const {
    const std::int32_t tiles = row_tiles();
    const std::int32_t segment = index / tiles;
    return {segment / chunks, index % tiles, segment % chunks};
  }

  /// Flattened KV tokens of a chunk.
  COPPICE_HOST_DEVICE constexpr IndexRange tokens_of(std::int32_t chunk) const {
    const std::int32_t begin = chunk * chunk_tokens;
    const std::int32_t rest = prefix + tail - begin;
    if (rest <= 0) return {};
    return {begin, begin + (rest < chunk_tokens ? rest : chunk_tokens)};
  }
  /// The KV token at a place of the flattened list.
  COPPICE_HOST_DEVICE constexpr VisibleKv token(const KvSlot* prefix_slots,
                                                const VisibleKv* tail_tokens,
                                                std::int32_t at) const {
    return at < prefix ? VisibleKv{prefix_slots[prefix_begin + at], 0, rows, prefix_position + at}
                       : tail_tokens[at - prefix];
  }

  COPPICE_HOST_DEVICE constexpr std::int32_t query_of(std::int32_t packed_row) const {
    return packed_row / group;
  }
  COPPICE_HOST_DEVICE constexpr std::int32_t head_of(std::int32_t kv_head,
                                                     std::int32_t packed_row) const {
    return kv_head * group + packed_row % group;
  }
  /// Queries of the packed rows [first, first + count), those past the last real one left out.
  COPPICE_HOST_DEVICE constexpr IndexRange queries_of(std::int32_t first,
                                                      std::int32_t count) const {
    const IndexRange real = intersection({first, first + count}, {0, packed_rows()});
    return real.empty() ? IndexRange{} : IndexRange{real.begin / group, (real.end - 1) / group + 1};
  }

  /// Where the partial result of a query, head and chunk lies; those to be joined are neighbours.
  COPPICE_HOST_DEVICE constexpr std::int64_t partial(std::int32_t query, std::int32_t head,
                                                     std::int32_t chunk) const {
    return (std::int64_t{query} * heads() + head) * chunks + chunk;
  }
};

// --- the host's choice of chunks --------------------------------------------------------------

/// Chunk lengths are multiples of it.
inline constexpr std::int32_t chunk_step = 64;
/// A pass is cut into several chunks only where that gives every resident block at most this
/// many items, which bounds the partial results.
inline constexpr std::int32_t max_item_waves = 4;

/// Which kernel runs a pass: the one that takes items, followed by the one that joins partial
/// results or, if each item has all tokens, alone; or one that takes ranges of the work.
enum class AttentionKernel { items, whole_items, ranges };

/// What a kernel that takes ranges (range_plan.h) computes at a time.
struct RangeTiles {
  std::int32_t rows = 0;    ///< packed rows of a row tile
  std::int32_t tokens = 0;  ///< of a KV tile

  auto operator<=>(const RangeTiles&) const = default;
};

/// A pass's launch of attention.
struct AttentionLaunch {
  AttentionKernel kernel = AttentionKernel::items;
  RangeTiles tiles;  ///< where it takes ranges
  /// In ranges with wide row tiles, whether halves leave out the KV tiles that they do not see.
  /// That takes longer where both see nearly all, as one text's rows do.
  bool leaves_out = false;

  bool takes_ranges() const { return kernel == AttentionKernel::ranges; }
  auto operator<=>(const AttentionLaunch&) const = default;
};

/// Blocks that the device holds at a time, by row tile.
struct ResidentBlocks {
  std::int32_t narrow = 1;
  std::int32_t wide = 1;
  /// Blocks of the kernel that takes ranges of work (range_plan.h); 0: the device has none.
  std::int32_t ranges = 0;
  /// Where not 0, ranges run every pass if there are any, with these tiles instead of those that
  /// suit it.
  RangeTiles range_tiles = {};
  /// Where not 0, ranges have gangs of this many blocks, and this many gangs or fewer
  /// (range_plan.h), instead of what suits the pass.
  std::int32_t range_gang = 0, range_gangs = 0;

  std::int32_t of(std::int32_t row_tile) const {
    return row_tile == narrow_row_tile ? narrow : wide;
  }
};

/// The kernel for a pass of `tokens` KV tokens run by launches for `padded_rows` rows. Few rows
/// over few tokens are the items' on any device: they need no blocks that wait for one another.
AttentionKernel attention_kernel_for(const AttentionShape& shape, std::int32_t padded_rows,
                                     std::int32_t tokens, const ResidentBlocks& blocks);

/// The plan of a pass of `rows` rows over `prefix` and `tail` KV tokens, run by launches for
/// `padded_rows` rows. Chunks are chosen so that the resident blocks get even shares. `longest`: of
/// all row tiles' parts of the list, outside of which they see nothing (longest_span()); below 0:
/// the list. With several texts it may be short, and the one chunk of an item then is no longer.
FlattenPlan make_flatten_plan(const AttentionShape& shape, std::int32_t rows,
                              std::int32_t padded_rows, std::int32_t prefix, std::int32_t tail,
                              const ResidentBlocks& blocks, std::int32_t longest = -1);

/// The tokens from the first to the last that some query of a row tile sees, of the row tile that
/// has most. `spans` is scratch memory.
std::int32_t longest_span(std::span<const KvSegment> tail, std::int32_t prefix, std::int32_t rows,
                          std::int32_t group, std::int32_t tile_rows,
                          std::vector<IndexRange>& spans);

/// What partial results need at most.
struct PartialCapacity {
  std::int64_t out = 0;  ///< times head_dim f32
  std::int64_t lse = 0;  ///< f32
};
/// For plans within the limits and for ranges. An item's partial result has per query and head
/// head_dim f32 and one for the log-sum-exp; a range's has half as much and two.
PartialCapacity partial_capacity(const PassLimits& limits, const ResidentBlocks& blocks);

}  // namespace coppice
