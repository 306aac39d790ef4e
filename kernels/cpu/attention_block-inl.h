// Tiles of rows and blocks of tokens that attention works in; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/window.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// Multiples of 16 are multiples of any vector up to 16 floats.
using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;
constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(Floats()));
constexpr bool kManyRegisters = kLanes >= 16;                  ///< 32 vector registers
constexpr std::int32_t kMostVectors = kManyRegisters ? 4 : 2;  ///< of a wide tile
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

struct Scratch {
  float* queries;  ///< wide: [head_dim][row]; narrow: [row][head_dim]; scaled
  float* scores;   ///< wide: [token][row]; narrow: [row][attention_block]
  float* out;      ///< [row][head_dim], not normalised
  float* maximum;  ///< [row], base 2
  float* sum;      ///< [row]
  float* rescale;  ///< [row]: factor of `out` before the block is added
  float* behind;   ///< [row]: how far its position is behind the tile's first; for windows
  float* widened;  ///< [token][head_dim]: a block's keys or values
};

inline Scratch carve(float* memory, std::int64_t dim) {
  Scratch s;
  s.queries = memory;
  s.scores = s.queries + attention_rows * dim;
  s.out = s.scores + attention_rows * attention_block;
  s.maximum = s.out + attention_rows * dim;
  s.sum = s.maximum + attention_rows;
  s.rescale = s.sum + attention_rows;
  s.behind = s.rescale + attention_rows;
  s.widened = s.behind + attention_rows;
  return s;
}

struct Tile {
  const AttentionCall* call;
  const AttentionPlan::Chunk* chunk;
  std::int32_t kv_head;
  std::int32_t first_row;  ///< packed row of the item
  std::int32_t rows;
  std::int64_t dim;
  std::int32_t nearest = 0, farthest = 0;  ///< positions of its rows; for windows

  std::int32_t window() const { return call->rule.window; }
  std::int32_t query(std::int32_t row) const {
    return chunk->q_begin + (first_row + row) / call->group;
  }
  std::int32_t head(std::int32_t row) const {
    return kv_head * call->group + (first_row + row) % call->group;
  }
  const float* q_row(std::int32_t row) const {
    return call->q + query(row) * call->q_stride + head(row) * dim;
  }
};

/// Where the tokens of a block lie and which rows of the tile see them.
struct Block {
  std::int32_t tokens;
  std::int64_t offset[attention_block];  ///< into keys and values
  std::int64_t widened_offset[attention_block];
  std::int32_t row_begin[attention_block], row_end[attention_block];
  bool masked;  ///< some row does not see some token by its interval
  /// By a window, the rows that see the token are less than this behind the tile's first position.
  float behind_end[attention_block];
  bool windowed;  ///< some row does not see some token by the window
};

/// The score loops run over whole groups of tokens: the last one is repeated.
inline void repeat_last(std::int32_t tokens, std::int64_t* offset) {
  for (std::int32_t t = tokens; t < attention_block && t % 16 != 0; ++t) {
    offset[t] = offset[tokens - 1];
  }
}

/// The positions of a tile's rows, `padded_rows` of which repeat its last one.
inline void place_rows(Tile& tile, std::int32_t padded_rows, const Scratch& s) {
  const auto position = [&](std::int32_t row) { return tile.call->positions[tile.query(row)]; };
  tile.nearest = tile.farthest = position(0);
  for (std::int32_t row = 1; row < tile.rows; ++row) {
    tile.nearest = std::min(tile.nearest, position(row));
    tile.farthest = std::max(tile.farthest, position(row));
  }
  for (std::int32_t row = 0; row < padded_rows; ++row) {
    s.behind[row] = static_cast<float>(position(std::min(row, tile.rows - 1)) - tile.nearest);
  }
}

/// The window's part in filling a block; false if no row of the tile is near enough to any token.
inline bool window_block(const Tile& tile, std::int32_t begin, Block& block) {
  // Distances count exactly in f32 up to here, which exceeds those in a tree by far.
  constexpr std::int64_t countable = 1 << 24;
  const std::int32_t* position = tile.call->plan->position.data() + begin;
  bool seen = false;
  for (std::int32_t t = 0; t < block.tokens; ++t) {
    const std::int64_t end = window_end(position[t], tile.window());
    block.behind_end[t] =
        static_cast<float>(std::clamp<std::int64_t>(end - tile.nearest, 0, countable));
    seen = seen || end > tile.nearest;
    block.windowed = block.windowed || end <= tile.farthest;
  }
  return seen;
}

/// Fills `block` from flattened tokens [begin, end); false if no row of the tile sees any.
inline bool fill_block(const Tile& tile, std::int32_t begin, std::int32_t end, Block& block) {
  const AttentionPlan& plan = *tile.call->plan;
  const KvLayout& layout = *tile.call->layout;
  block.tokens = end - begin;
  block.masked = false;
  block.windowed = false;
  if (tile.window() > 0 && !window_block(tile, begin, block)) return false;
  if (!tile.chunk->full) {
    bool seen = false;
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const auto token = static_cast<std::size_t>(begin + t);
      const auto row_of = [&](std::int32_t query) {
        return std::clamp((query - tile.chunk->q_begin) * tile.call->group - tile.first_row, 0,
                          tile.rows);
      };
      block.row_begin[t] = row_of(plan.q_begin[token]);
      block.row_end[t] = row_of(plan.q_end[token]);
      seen = seen || block.row_begin[t] < block.row_end[t];
      block.masked = block.masked || block.row_begin[t] > 0 || block.row_end[t] < tile.rows;
    }
    if (!seen) return false;
  }
  const auto page_size = static_cast<std::uint32_t>(layout.page_size);
  const std::int64_t page_floats = std::int64_t{layout.kv_heads} * page_size * tile.dim;
  const std::int64_t head_floats = std::int64_t{tile.kv_head} * page_size * tile.dim;
  const bool shifts = (page_size & (page_size - 1)) == 0;
  const int shift = __builtin_ctz(page_size);
  for (std::int32_t t = 0; t < block.tokens; ++t) {
    const auto slot = static_cast<std::uint32_t>(plan.slot[static_cast<std::size_t>(begin + t)]);
    const std::uint32_t page = shifts ? slot >> shift : slot / page_size;
    block.offset[t] = page * page_floats + head_floats + (slot - page * page_size) * tile.dim;
  }
  repeat_last(block.tokens, block.offset);
  return true;
}

/// Keys or values of a block: token t's lie at first + offset[t].
template <DType kType>
struct TokenRows {
  const Stored<kType>* first;
  const std::int64_t* offset;
};

template <DType kType>
TokenRows<kType> rows_of(const void* layer, const Block& block) {
  return {static_cast<const Stored<kType>*>(layer), block.offset};
}

/// Rows that will be read next, asked for in the midst of other work: a head's rows lie together
/// only within a page, too little for the hardware to see what comes.
struct Ahead {
  const char* first = nullptr;
  const std::int64_t* offset = nullptr;
  std::int32_t tokens = 0;
  std::int64_t element_bytes = 0, row_bytes = 0;

  HWY_INLINE void ask(std::int32_t begin, std::int32_t count) const {
    if (tokens == 0) return;
    for (std::int32_t t = begin; t < std::min(begin + count, tokens); ++t) {
      const char* row = first + offset[t] * element_bytes;
      for (std::int64_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(row + at, 0, 3);
    }
  }
};

template <DType kType>
Ahead ahead_of(TokenRows<kType> rows, std::int32_t tokens, std::int64_t dim) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Stored<kType>));
  return {reinterpret_cast<const char*>(rows.first), rows.offset, tokens, size, dim * size};
}

/// Copies a block's rows to s.widened. It pays where several rows of the tile use them, or where
/// elements are taken one by one.
template <DType kType>
HWY_NOINLINE TokenRows<DType::f32> widened(TokenRows<kType> from, std::int64_t dim,
                                           const Ahead& ahead, const Scratch& s, Block& block) {
  const Floats d;
  for (std::int32_t t = 0; t < block.tokens; ++t) {
    ahead.ask(t, 1);
    const Stored<kType>* row = from.first + from.offset[t];
    float* to = s.widened + t * dim;
    std::int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) hn::StoreU(load_as<kType>(d, row + i), d, to + i);
    for (; i < dim; ++i) to[i] = value_as<kType>(row + i);
    block.widened_offset[t] = t * dim;
  }
  repeat_last(block.tokens, block.widened_offset);
  return {s.widened, block.widened_offset};
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
