// The warps that copy keys and values into shared memory.
#pragma once

#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// A token of a KV tile.
struct TileToken {
  std::int32_t slot = no_slot;
  std::uint32_t seen_by = 0;  ///< as in SharedState
};

/// Where a lane's token lies, in rows from the layer's first; -1: nowhere.
struct TileSource {
  std::int32_t pool_row = -1;
  bool by_boxes = false;  ///< each 16 tokens of the warp are an aligned box of neighbouring slots
};

/// One warp of the producer: it copies V::warp_tokens tokens of every KV tile; where these are 16,
/// lanes i and i + 16 know the same token. Every warp finds the places of its tokens by itself.
template <typename V>
class Producer {
 public:
  __device__ Producer(const Arguments& arguments, const RangePlan& plan, SharedTiles<V>& tiles,
                      SharedState<V>& state)
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
    const TailRuns& runs = arguments_.pass.tail_runs[piece.row_tile];
    run_begin_ = runs.begin[lane_];
    seen_up_to_ = runs.seen_up_to[lane_];
    VisibleKv next = token_at(piece.tile_begin);
    std::int32_t tile_end = piece.tile_end;
    if (tile_end > plan_.prefix / V::tile_tokens) {
      tile_end = min(tile_end, plan_.tiles_of(__shfl_sync(all_lanes, seen_up_to_, 31)));
    }
    // Shorter units of a gang may have nothing left here.
    const std::int32_t tiles = max(tile_end - piece.tile_begin, 1);
    // Where consumers share rows, they alternate, and both get as many.
    const std::int32_t count = tiles + (V::shares_rows ? tiles % 2 : 0);
    TileSource last;
    StageCursor<V> of_values;
    // Values follow the next tile's keys, as consumers ask for them.
#pragma unroll 1
    for (std::int32_t i = 0; i <= count; ++i) {
      TileSource source;
      if (i < count) {
        wait(&state_.keys_emptied[cursor_.stage], cursor_.parity ^ 1);
        TileToken token;
        if (i < tiles) token = seen_from_here(next);
        if (i + 1 < tiles) next = token_at(piece.tile_begin + i + 1);
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
  static constexpr int rows_per_copy = 32 / V::vectors;
  /// Rows of one lane's copies lie rows_per_copy apart; every eighth row is permuted alike.
  static constexpr int permutations = 8 / rows_per_copy;
  static constexpr int copies = V::warp_tokens / rows_per_copy;
  static constexpr int pages = V::warp_tokens / page_box;

  __device__ std::uint32_t seen_by_all() const {
    return static_cast<std::uint32_t>(queries_.end - queries_.begin) << 8;
  }
  __device__ TileToken seen_from_here(const VisibleKv& token) const {
    const IndexRange seen_by = queries_that_see(token, queries_);
    if (seen_by.empty()) return {};
    return {token.slot, static_cast<std::uint32_t>(seen_by.begin - queries_.begin) |
                            static_cast<std::uint32_t>(seen_by.end - queries_.begin) << 8};
  }
  /// This lane's token of a unit's KV tile: of the prefix, then of the tail's runs.
  __device__ VisibleKv token_at(std::int32_t tile) const {
    const std::int32_t place =
        tile * V::tile_tokens + V::warp_tokens * warp_ + lane_ % V::warp_tokens;
    VisibleKv token{no_slot, 0, 0};
    if (place < plan_.prefix) {
      token = {arguments_.pass.prefix_slots[place], 0, plan_.rows};
    }
    if (__all_sync(all_lanes, place < plan_.prefix)) return token;
    wait_for_former_kernels();
    const std::int32_t rank = place - plan_.prefix;
    // The first run that has more tokens up to its end.
    int run = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      if (__shfl_sync(all_lanes, seen_up_to_, run + step - 1) <= rank) run += step;
    }
    const std::int32_t begin = __shfl_sync(all_lanes, run_begin_, run);
    const std::int32_t before = __shfl_sync(all_lanes, seen_up_to_, max(run - 1, 0));
    const std::int32_t seen = __shfl_sync(all_lanes, seen_up_to_, 31);
    if (rank >= 0 && rank < seen) {
      token = arguments_.pass.tail[begin + rank - (run > 0 ? before : 0)];
    }
    return token;
  }

  __device__ void describe(const TileToken& token, const TileSource& source, bool last) {
    if (lane_ < V::warp_tokens) {
      state_.seen_by[cursor_.description][V::warp_tokens * warp_ + lane_] =
          static_cast<std::uint16_t>(token.seen_by);
    }
    const bool masked = __any_sync(all_lanes, token.seen_by != seen_by_all());
    if (lane_ == 0) {
      state_.notes[cursor_.description][warp_] =
          (masked ? note_masked : 0) | (last ? note_last : 0) | (source.by_boxes ? 0 : note_copied);
    }
    // Every lane for what it has written.
    arrive(&state_.keys_filled[cursor_.stage]);
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
    const std::uint32_t first = shared + V::warp_tokens * 128 * static_cast<std::uint32_t>(warp_);
    if (source.by_boxes) {
      // Lane i copies page i % pages of panel i / pages.
      const std::int32_t row = __shfl_sync(all_lanes, source.pool_row, lane_ % pages * page_box);
      if (lane_ == 0) expect_bytes(filled, V::warp_tokens * V::head_dim * 2);
      __syncwarp();
      if (lane_ < pages * V::panels) {
        copy_box(first + static_cast<std::uint32_t>(lane_ / pages * V::panel_bytes +
                                                    lane_ % pages * page_box * 128),
                 boxes, lane_ / pages * 64, arguments_.first_pool_row + row, filled);
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
  SharedState<V>& state_;
  const int warp_, lane_;
  std::uint32_t place_[permutations];
  StageCursor<V> cursor_;
  IndexRange queries_;
  std::int32_t kv_head_ = 0;
  // Of the row tile's run of the tail that this lane has.
  std::int32_t run_begin_ = 0;
  std::int32_t seen_up_to_ = 0;
};

}  // namespace coppice::cuda::hopper
