// The warps that copy keys and values into shared memory.
#pragma once

#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// A token of a KV tile.
template <int views>
struct TileToken {
  std::int32_t slot = no_slot;
  std::uint32_t seen_by[views] = {};  ///< intervals, as in SharedState
  std::int32_t window_end = 0;
};

/// Where a lane's token lies, in rows from the layer's first; -1: nowhere.
struct TileSource {
  std::int32_t pool_row = -1;
  /// Which 16 of the warp's tokens are an aligned box of neighbouring slots, a bit for each.
  std::uint32_t boxes = 0;
};

/// One warp of a producer: it copies V::warp_tokens tokens of every KV tile; where these are 16,
/// lanes i and i + 16 know the same token. Every warp finds the places of its tokens by itself.
template <typename V>
class Producer {
 public:
  __device__ Producer(const Arguments& arguments, const RangePlan& plan, SharedTiles<V>& tiles,
                      SharedState<V>& state, int index)
      : arguments_(arguments),
        plan_(plan),
        tiles_(tiles),
        state_(state),
        warp_(static_cast<int>(threadIdx.x) / 32 % producer_warps),
        lane_(static_cast<int>(threadIdx.x) % 32),
        turn_(index),
        prefix_(plan.prefix) {
    if (index == 1) cursor_.advance();
    const int vector = lane_ % V::vectors;
    const int row = lane_ / V::vectors;
    place_ = static_cast<std::uint32_t>(vector / 8 * V::panel_bytes + row * 128 +
                                        ((vector % 8) ^ row) * 16);
  }

  __device__ void copy(const RangePiece& piece) {
    const RowTile& row_tile = arguments_.pass.row_tiles[piece.row_tile];
#pragma unroll
    for (int view = 0; view < V::views; ++view) {
      IndexRange rows = piece.rows;
      if constexpr (V::views > 1) {
        rows.begin += view * V::view_rows;
        rows.end = min(rows.end, rows.begin + V::view_rows);
      }
      queries_[view] = plan_.queries_of(rows);
    }
    kv_head_ = piece.kv_head;
    if constexpr (V::window_or_cap) {
      const PassScalars& scalars = *arguments_.pass.scalars;
      positions_ = row_tile.positions;
      prefix_ = plan_.prefix - row_tile.prefix_begin;
      prefix_slots_ = arguments_.pass.prefix_slots + scalars.prefix_begin + row_tile.prefix_begin;
      prefix_position_ = scalars.prefix_position + row_tile.prefix_begin;
    }
    run_begin_ = row_tile.begin[lane_];
    run_first_ = row_tile.first[lane_];
    run_end_ = row_tile.end[lane_];
    in_end_ = 0;
    const std::int32_t unit_tiles =
        plan_.tiles_of(prefix_ + __shfl_sync(all_lanes, run_end_, RowTile::most_runs - 1));
    const TileOrder order(
        prefix_ / V::tile_tokens, unit_tiles,
        V::views == 1 ? unit_tiles : (prefix_ + row_tile.lower_tokens) / V::tile_tokens);
    VisibleKv next = token_at(order[piece.tile_begin + turn_]);
    // Shorter units of a gang may have nothing left here.
    const std::int32_t tiles = max(min(piece.tile_end, unit_tiles) - piece.tile_begin, 1);
    // Each taker needs one: a piece of one tile may get an empty second one.
    const std::int32_t count = max(tiles, V::takers);
    TileSource last;
    StageCursor<V> of_values;
    // Producers take KV tiles in turn, from piece to piece. Values follow the keys of a producer's
    // next tile, as consumers ask for them.
    const std::int32_t first = turn_;
#pragma unroll 1
    for (std::int32_t i = first; i < count + V::producers; i += V::producers) {
      TileSource source;
      if (i < count) {
        cursor_.wait_for_room(state_.keys_emptied);
        TileToken<V::views> token;
        if (i < tiles) token = seen_from_here(next);
        if (i + V::producers < tiles) next = token_at(order[piece.tile_begin + i + V::producers]);
        source = source_of(token);
        describe(token, source, i >= count - V::takers);
        copy_part(arguments_.key_boxes, arguments_.keys, source,
                  shared_address(tiles_.keys[cursor_.stage]), &state_.keys_filled[cursor_.stage]);
      }
      if (i > first) {
        of_values.wait_for_room(state_.values_emptied);
        copy_part(arguments_.value_boxes, arguments_.values, last,
                  shared_address(tiles_.values[of_values.stage]),
                  &state_.values_filled[of_values.stage]);
      }
      if (i < count) {
        last = source;
        of_values = cursor_;
        for (int step = 0; step < V::producers; ++step) cursor_.advance();
      }
    }
    turn_ = (first + count) % V::producers;
  }

 private:
  static constexpr int rows_per_copy = 32 / V::vectors;
  static constexpr int boxes = V::warp_tokens / page_box;
  static constexpr std::uint32_t all_boxes = (1u << boxes) - 1;

  __device__ std::int32_t query_count(int view) const {
    return queries_[view].end - queries_[view].begin;
  }
  __device__ bool has_few_queries(int view) const { return query_count(view) <= few_queries; }
  __device__ std::uint32_t seen_by_all(int view) const {
    return static_cast<std::uint32_t>(query_count(view)) << 8;
  }
  __device__ TileToken<V::views> seen_from_here(const VisibleKv& token) const {
    const std::int32_t end = V::window_or_cap ? token.position + arguments_.window : 0;
    if (V::window_or_cap && end <= positions_.begin) return {};
    TileToken<V::views> seen;
    seen.window_end = end;
#pragma unroll
    for (int view = 0; view < V::views; ++view) {
      const IndexRange seen_by = queries_that_see(token, queries_[view]);
      if (seen_by.empty()) continue;
      seen.slot = token.slot;
      seen.seen_by[view] = static_cast<std::uint32_t>(seen_by.begin - queries_[view].begin) |
                           static_cast<std::uint32_t>(seen_by.end - queries_[view].begin) << 8;
    }
    return seen;
  }
  /// This lane's token of a unit's KV tile: of the prefix, then of the tail's runs.
  __device__ VisibleKv token_at(std::int32_t tile) {
    const std::int32_t place =
        tile * V::tile_tokens + V::warp_tokens * warp_ + lane_ % V::warp_tokens;
    VisibleKv token{no_slot, 0, 0};
    if (place < prefix_) {
      token = {prefix_slots_[place], 0, plan_.rows,
               V::window_or_cap ? prefix_position_ + place : 0};
    }
    if (__all_sync(all_lanes, place < prefix_)) return token;
    wait_for_former_kernels();
    const std::int32_t rank = place - prefix_;
    if (!__all_sync(all_lanes, rank >= in_first_ && rank < in_end_)) {
      // The first run that ends later.
      int run = 0;
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        if (__shfl_sync(all_lanes, run_end_, run + step - 1) <= rank) run += step;
      }
      in_begin_ = __shfl_sync(all_lanes, run_begin_, run);
      in_first_ = __shfl_sync(all_lanes, run_first_, run);
      in_end_ = __shfl_sync(all_lanes, run_end_, run);
    }
    if (rank >= in_first_ && rank < in_end_) {
      const VisibleKv* source = arguments_.pass.tail + (in_begin_ + rank - in_first_);
      if constexpr (V::producers > 1 || V::leaves_out) {
        // One load instead of three.
        const int4 found = *reinterpret_cast<const int4*>(source);
        token = {found.x, found.y, found.z, 0};
      } else {
        token = *source;
      }
    }
    return token;
  }

  __device__ void describe(const TileToken<V::views>& token, const TileSource& source, bool last) {
    bool by_bits = has_few_queries(0);
#pragma unroll
    for (int view = 1; view < V::views; ++view) by_bits &= has_few_queries(view);
    const bool leaves_window = V::window_or_cap && token.window_end < positions_.end;
    std::uint32_t notes = 0;
#pragma unroll
    for (int view = 0; view < V::views; ++view) {
      std::uint32_t seen_by = token.seen_by[view];
      const bool masked = __any_sync(all_lanes, seen_by != seen_by_all(view) || leaves_window);
      const bool seen = V::views == 1 || __any_sync(all_lanes, seen_by != 0);
      notes |= (masked ? note_masked << view : 0) | (seen ? note_seen << view : 0);
      if (by_bits) seen_by = (1u << (seen_by >> 8)) - (1u << (seen_by & 0xff));
      if (lane_ < V::warp_tokens) {
        state_.seen_by[cursor_.description][view][V::warp_tokens * warp_ + lane_] =
            static_cast<std::uint16_t>(seen_by);
      }
    }
    if constexpr (V::window_or_cap) {
      if (lane_ < V::warp_tokens) {
        state_.window_end[cursor_.description][V::warp_tokens * warp_ + lane_] = token.window_end;
      }
    }
    if (lane_ == 0) {
      state_.notes[cursor_.description][warp_] = notes | (last ? note_last : 0) |
                                                 (by_bits ? note_bits : 0) |
                                                 (source.boxes == all_boxes ? 0 : note_copied);
    }
    // Every lane for what it has written.
    arrive(&state_.keys_filled[cursor_.stage]);
  }

  __device__ TileSource source_of(const TileToken<V::views>& token) const {
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
    const std::uint32_t lanes = __ballot_sync(all_lanes, arguments_.has_boxes && in_order);
#pragma unroll
    for (int box = 0; box < boxes; ++box) {
      const std::uint32_t of_box = 0xffffu << (page_box * box);
      if ((lanes & of_box) == of_box) source.boxes |= 1u << box;
    }
    return source;
  }
  /// Tokens without a slot become zeros: their weights are 0, and 0 times what happens to lie
  /// there may be NaN.
  __device__ void copy_part(const CUtensorMap& map, const __nv_bfloat16* pool,
                            const TileSource& source, std::uint32_t shared,
                            std::uint64_t* filled) const {
    const std::uint32_t first = shared + boxes * V::box_bytes * static_cast<std::uint32_t>(warp_);
    if (source.boxes != 0) {
      // Halves that leave tiles out wait for this producer: one lane copies all boxes, which takes
      // fewer instructions. Others are 2 to 6% slower so.
      const int bytes = __popc(source.boxes) * page_box * V::head_dim * 2;
      if constexpr (V::leaves_out) {
        const bool elected = elect_lane();
        if (elected) expect_bytes(filled, bytes);
#pragma unroll
        for (int box = 0; box < boxes; ++box) {
          const std::int32_t row = __shfl_sync(all_lanes, source.pool_row, box * page_box);
          if (elected) start_box(map, source, box, 0, row, first, filled);
        }
      } else {
        // Lane i copies box i; with a window or a soft cap, panel i / boxes of box i % boxes.
        const int box = lane_ % boxes;
        const std::int32_t row = __shfl_sync(all_lanes, source.pool_row, box * page_box);
        if (lane_ == 0) expect_bytes(filled, bytes);
        __syncwarp();
        if (lane_ < boxes * V::box_copies) {
          start_box(map, source, box, lane_ / boxes, row, first, filled);
        }
      }
    }
    if (source.boxes != all_boxes) {
      const bool all_there =
          __all_sync(all_lanes, source.pool_row >= 0) && head_dim_of<V>(arguments_) == V::head_dim;
#pragma unroll 1
      for (int box = 0; box < boxes; ++box) {
        if ((source.boxes >> box & 1) != 0) continue;
        if (all_there) {
          copy_rows<true>(pool, source.pool_row, first, box);
        } else {
          copy_rows<false>(pool, source.pool_row, first, box);
        }
      }
    }
    arrive_after_copies(filled);
  }
  /// Starts a box, or with a window or a soft cap one panel of it, if the tokens are one; `row`:
  /// the first's.
  __device__ void start_box(const CUtensorMap& map, const TileSource& source, int box, int panel,
                            std::int32_t row, std::uint32_t shared, std::uint64_t* filled) const {
    if ((source.boxes >> box & 1) == 0) return;
    const std::uint32_t to =
        shared + static_cast<std::uint32_t>(panel * V::panel_bytes + box * V::box_bytes);
    const std::int32_t first_row = arguments_.first_pool_row + row;
    if constexpr (V::window_or_cap) {
      copy_box(to, map, panel * 64, first_row, filled);
    } else {
      copy_box(to, map, 0, 0, 0, first_row / 8, filled);
    }
  }
  /// Describes one box's tokens. What bounds a block whose tokens lie in no order is how many
  /// instructions this takes.
  template <bool all_there>
  __device__ void copy_rows(const __nv_bfloat16* pool, std::int32_t pool_row, std::uint32_t shared,
                            int box) const {
    const std::int32_t head_dim = head_dim_of<V>(arguments_);
    const bool in_head = lane_ % V::vectors * 8 < head_dim;
    const __nv_bfloat16* source = pool + (in_head ? lane_ % V::vectors * 8 : 0);
    const std::uint32_t first = shared + static_cast<std::uint32_t>(box * V::box_bytes) + place_;
#pragma unroll
    for (int i = 0; i < page_box / rows_per_copy; ++i) {
      const std::int32_t row =
          __shfl_sync(all_lanes, pool_row, box * page_box + i * rows_per_copy + lane_ / V::vectors);
      // Rows of one lane's copies lie rows_per_copy apart, and their vectors are permuted alike but
      // for the bits that these have.
      const int later = i * rows_per_copy;
      const std::uint32_t to =
          (first ^ static_cast<std::uint32_t>(later % 8 * 16)) +
          static_cast<std::uint32_t>(later / 8 * V::eight_rows_bytes + later % 8 * 128);
      if constexpr (all_there) {
        copy_vector(to, source + std::int64_t{row} * V::head_dim);
      } else {
        const bool there = row >= 0 && in_head;
        copy_or_clear(to, source + (there ? std::int64_t{row} * head_dim : 0), there);
      }
    }
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
  SharedTiles<V>& tiles_;
  SharedState<V>& state_;
  const int warp_, lane_;
  std::uint32_t place_;  ///< in a box of a KV tile, of this lane's first vector
  int turn_;             ///< KV tiles of the next piece before this producer's first
  StageCursor<V> cursor_;
  // The prefix's tokens that the row tile may see; positions for windows.
  std::int32_t prefix_, prefix_position_ = 0;
  const std::int32_t* prefix_slots_ = arguments_.pass.prefix_slots;
  IndexRange queries_[V::views], positions_;
  std::int32_t kv_head_ = 0;
  // The part of the row tile's run of the tail that this lane has.
  std::int32_t run_begin_ = 0, run_first_ = 0, run_end_ = 0;
  // The run that this lane's last token of the tail was looked for in.
  std::int32_t in_begin_ = 0, in_first_ = 0, in_end_ = 0;
};

}  // namespace coppice::cuda::hopper
