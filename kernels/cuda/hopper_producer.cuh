// The warps that copy keys and values into shared memory.
#pragma once

#include <climits>

#include "kernels/cuda/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// A token of a KV tile.
struct TileToken {
  std::int32_t slot = no_slot;
  std::uint32_t seen_by = 0;  ///< as in SharedState
};

/// Where a lane's token lies, in rows from the layer's first; -1: nowhere.
struct TileSource {
  std::int32_t pool_row = -1;
  bool by_boxes = false;  ///< the warp's 32 tokens are whole pages in order
};

/// One warp of the producer: it copies 32 tokens of every KV tile. All warps of all blocks that
/// share a unit walk its tokens alike, so that nothing but shared memory is handed over.
template <typename V>
class Producer {
 public:
  __device__ Producer(const Arguments& arguments, const RangePlan& plan, SharedTiles<V>& tiles,
                      SharedState& state)
      : arguments_(arguments),
        plan_(plan),
        tiles_(tiles),
        state_(state),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    const int vector = lane_ % V::vectors;
    const int first_row = lane_ / V::vectors;
#pragma unroll
    for (int i = 0; i < permutations; ++i) {
      const int row = first_row + i * rows_per_copy;
      place_[i] = static_cast<std::uint32_t>(vector / 8 * V::panel_bytes + row * 128 +
                                             ((vector % 8) ^ (row % 8)) * 16);
    }
  }

  __device__ void copy(const RangePiece& piece) {
    queries_ = plan_.queries_of(piece.row_tile);
    kv_head_ = piece.kv_head;
    const std::int32_t prefix_tiles = plan_.prefix_tiles();
    const std::int32_t whole_begin = min(piece.tile_begin, prefix_tiles);
    const std::int32_t whole = min(piece.tile_end, prefix_tiles) - whole_begin;
    const std::int32_t rest_begin = max(piece.tile_begin, prefix_tiles) - prefix_tiles;
    prefix_rest_ = plan_.prefix - prefix_tiles * tile_tokens;
    const bool has_rest = piece.tile_end > prefix_tiles;
    std::int32_t rest = 0;
    // A consumer's tiles must be known to be its last ones: all but these can be copied before
    // it is known how many tokens of the tail are seen.
    const std::int32_t early = has_rest ? max(whole - (V::shares_rows ? 1 : 0), 0) : 0;
    std::int32_t count = INT_MAX;
    TileSource last;
    StageCursor of_values;
    KvSlot next = whole > 0 ? prefix_slot(whole_begin) : no_slot;
    // Values follow the next tile's keys, as consumers ask for them.
#pragma unroll 1
    for (std::int32_t i = 0; i <= count; ++i) {
      if (i == early) {
        if (has_rest) {
          const std::int32_t seen = prefix_rest_ + count_seen_tail();
          rest = (seen + tile_tokens - 1) / tile_tokens;
          if (piece.tile_end < plan_.unit_tiles) rest = min(rest, piece.tile_end - prefix_tiles);
          rest = max(rest - rest_begin, 1);
        }
        count = whole + rest;
        // Where consumers take turns, both get as many.
        if (V::shares_rows) count += count % 2;
      }
      TileSource source;
      if (i < count) {
        wait(&state_.keys_emptied[cursor_.stage], cursor_.parity ^ 1);
        TileToken token;
        if (i < whole) {
          token.slot = next;
          if (next >= 0) token.seen_by = seen_by_all();
          if (i + 1 < whole) next = prefix_slot(whole_begin + i + 1);
        } else if (i < whole + rest) {
          token = rest_token(rest_begin + i - whole);
        }
        source = source_of(token);
        describe(token, source, i >= count - (V::shares_rows ? 2 : 1));
        copy_part(arguments_.key_boxes, arguments_.keys, source,
                  shared_address(tiles_.keys[cursor_.stage]), &state_.keys_filled[cursor_.stage]);
      }
      if (i > 0) {
        wait(&state_.values_emptied[of_values.stage], of_values.parity ^ 1);
        copy_part(arguments_.value_boxes, arguments_.values, last,
                  shared_address(tiles_.values[of_values.stage]),
                  &state_.values_filled[of_values.stage]);
      }
      if (i < count) {
        last = source;
        of_values = cursor_;
        cursor_.advance();
      }
    }
  }

 private:
  static constexpr std::int32_t window_tokens = 32 * 32;
  static constexpr int rows_per_copy = 32 / V::vectors;
  /// Rows of one lane's copies lie rows_per_copy apart; every eighth row is permuted alike.
  static constexpr int permutations = 8 / rows_per_copy;
  static constexpr int copies = 32 / rows_per_copy;

  __device__ std::uint32_t seen_by_all() const {
    return static_cast<std::uint32_t>(queries_.end - queries_.begin) << 8;
  }
  __device__ KvSlot prefix_slot(std::int32_t tile) const {
    return arguments_.pass.prefix_slots[tile * tile_tokens + 32 * warp_ + lane_];
  }

  /// Looks at the window of tail tokens that starts at `begin`.
  __device__ void look_at(std::int32_t begin, std::int32_t rank) {
    constexpr int at_once = 8;
    window_begin_ = begin;
    window_rank_ = rank;
    seen_ = 0;
    for (int first = 0; first < 32 && begin + 32 * first < plan_.tail; first += at_once) {
      VisibleKv tokens[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const std::int32_t at = begin + 32 * (first + i) + lane_;
        tokens[i] = arguments_.pass.tail[min(at, plan_.tail - 1)];
        if (at >= plan_.tail) tokens[i].slot = no_slot;
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const unsigned seen =
            __ballot_sync(all_lanes, !queries_that_see(tokens[i], queries_).empty());
        if (lane_ == first + i) seen_ = seen;
      }
    }
    seen_up_to_ = __popc(seen_);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const std::int32_t before = __shfl_up_sync(all_lanes, seen_up_to_, step);
      if (lane_ >= step) seen_up_to_ += before;
    }
  }
  __device__ std::int32_t window_end_rank() const {
    return window_rank_ + __shfl_sync(all_lanes, seen_up_to_, 31);
  }
  /// Leaves the first window looked at.
  __device__ std::int32_t count_seen_tail() {
    std::int32_t count = 0;
    std::int32_t begin = max(plan_.tail - 1, 0) / window_tokens * window_tokens;
    for (; begin >= 0; begin -= window_tokens) {
      look_at(begin, 0);
      count += window_end_rank();
    }
    return count;
  }
  /// Place in the tail of the seen token that `rank` seen ones of the window come before.
  __device__ std::int32_t find(std::int32_t rank) const {
    int word = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (__shfl_sync(all_lanes, seen_up_to_, word + step - 1) <= rank) word += step;
    }
    word = min(word, 31);
    const std::int32_t up_to = __shfl_sync(all_lanes, seen_up_to_, word);
    unsigned seen = __shfl_sync(all_lanes, seen_, word);
    rank -= up_to - __popc(seen);
    int bit = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const int below = __popc(seen & ((1u << step) - 1));
      if (below <= rank) {
        rank -= below;
        seen >>= step;
        bit += step;
      }
    }
    return window_begin_ + 32 * word + bit;
  }

  /// This lane's token of a tile of the rest: what is left of the prefix, then the tail tokens
  /// that the row tile sees. Tiles must be asked for in order.
  __device__ TileToken rest_token(std::int32_t rest_tile) {
    const std::int32_t place = rest_tile * tile_tokens + 32 * warp_ + lane_;
    TileToken token;
    if (place < prefix_rest_) {
      token.slot = arguments_.pass.prefix_slots[plan_.prefix - prefix_rest_ + place];
      if (token.slot >= 0) token.seen_by = seen_by_all();
    }
    const std::int32_t rank = place - prefix_rest_;
    std::int32_t at = -1;
    while (true) {
      const std::int32_t end = window_end_rank();
      const std::int32_t found = find(max(rank - window_rank_, 0));
      if (rank >= window_rank_ && rank < end) at = found;
      const std::int32_t next = window_begin_ + window_tokens;
      if (next >= plan_.tail || !__any_sync(all_lanes, rank >= end)) break;
      look_at(next, end);
    }
    if (at >= 0) {
      const VisibleKv seen = arguments_.pass.tail[at];
      token.slot = seen.slot;
      token.seen_by =
          static_cast<std::uint32_t>(max(seen.q_begin, queries_.begin) - queries_.begin) |
          static_cast<std::uint32_t>(min(seen.q_end, queries_.end) - queries_.begin) << 8;
    }
    return token;
  }

  __device__ void describe(const TileToken& token, const TileSource& source, bool last) {
    state_.seen_by[cursor_.description][32 * warp_ + lane_] =
        static_cast<std::uint16_t>(token.seen_by);
    const bool masked = __any_sync(all_lanes, token.seen_by != seen_by_all());
    if (lane_ == 0) {
      state_.notes[cursor_.description][warp_] =
          (masked ? note_masked : 0) | (last ? note_last : 0) | (source.by_boxes ? 0 : note_copied);
    }
    __syncwarp();
    if (lane_ == 0) arrive(&state_.keys_filled[cursor_.stage]);
  }

  __device__ TileSource source_of(const TileToken& token) const {
    TileSource source;
    if (token.slot >= 0) {
      const std::int32_t page = arguments_.page_shift >= 0 ? token.slot >> arguments_.page_shift
                                                           : token.slot / arguments_.page_size;
      const std::int32_t place = token.slot - page * arguments_.page_size;
      source.pool_row = (page * arguments_.kv_heads + kv_head_) * arguments_.page_size + place;
    }
    const std::int32_t box_row = __shfl_sync(all_lanes, source.pool_row, lane_ & page_box);
    const bool in_order = source.pool_row >= 0 && token.slot % page_box == lane_ % page_box &&
                          source.pool_row == box_row + lane_ % page_box;
    source.by_boxes = arguments_.has_boxes && __all_sync(all_lanes, in_order);
    return source;
  }
  /// Tokens without a slot become zeros: their weights are 0, and 0 times what happens to lie
  /// there may be NaN.
  __device__ void copy_part(const CUtensorMap& boxes, const __nv_bfloat16* pool,
                            const TileSource& source, std::uint32_t shared,
                            std::uint64_t* filled) const {
    const std::uint32_t first = shared + 32 * 128 * static_cast<std::uint32_t>(warp_);
    if (source.by_boxes) {
      // Lane i copies pages i % 2 of panel i / 2.
      const std::int32_t row = __shfl_sync(all_lanes, source.pool_row, lane_ % 2 * page_box);
      if (lane_ == 0) expect_bytes(filled, 32 * V::head_dim * 2);
      __syncwarp();
      if (lane_ < 2 * V::panels) {
        copy_box(first + static_cast<std::uint32_t>(lane_ / 2 * V::panel_bytes +
                                                    lane_ % 2 * page_box * 128),
                 boxes, lane_ / 2 * 64, arguments_.first_pool_row + row, filled);
      }
    } else {
      copy_rows(pool, source.pool_row, first);
    }
    arrive_after_copies(filled);
  }
  __device__ void copy_rows(const __nv_bfloat16* pool, std::int32_t pool_row,
                            std::uint32_t shared) const {
    const __nv_bfloat16* source = pool + lane_ % V::vectors * 8;
#pragma unroll permutations
    for (int i = 0; i < copies; ++i) {
      const std::int32_t row =
          __shfl_sync(all_lanes, pool_row, i * rows_per_copy + lane_ / V::vectors);
      copy_or_clear(shared + place_[i % permutations] + i / permutations * 1024,
                    source + (row < 0 ? 0 : std::int64_t{row} * V::head_dim), row >= 0);
    }
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
  SharedTiles<V>& tiles_;
  SharedState& state_;
  const int warp_, lane_;
  std::uint32_t place_[permutations];
  StageCursor cursor_;
  IndexRange queries_;
  std::int32_t kv_head_ = 0;
  std::int32_t prefix_rest_ = 0;
  // A window of the tail: which of its tokens the row tile sees.
  std::int32_t window_begin_ = 0;
  std::int32_t window_rank_ = 0;  ///< how many seen ones come before it
  unsigned seen_ = 0;             ///< a bit for each of the 32 tokens that this lane has of it
  std::int32_t seen_up_to_ = 0;   ///< how many are seen in this lane's and lower lanes' tokens
};

}  // namespace coppice::cuda::hopper
