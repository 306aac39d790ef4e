// Tiles of rows and the tokens that attention gives them; included once per Highway target.
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

/// What maxima subtract: themselves, or 0 where nothing was seen, so that weights are 0, not NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V base_of(D d, V maximum) {
  return hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(d, kMinusInfinity)), maximum);
}

/// Tokens of a chunk that some row of a tile sees: where they lie and which rows see them.
struct Piece {
  std::int32_t tokens;
  std::int64_t* offset;  ///< into keys and values; the last repeated up to a multiple of 16
  std::int32_t *row_begin, *row_end;
  bool masked;  ///< some row does not see some token by its interval
  /// By a window, the rows that see the token are less than this behind the tile's first position.
  float* behind_end;
  bool windowed;  ///< some row does not see some token by the window
};

struct Scratch {
  float*
      queries;    ///< wide: by lane order, see transpose_queries(); narrow: [row][head_dim]; scaled
  float* scores;  ///< wide: [token][row]; narrow: [row][stride]
  float* part;    ///< [row][head_dim], of a chunk, not normalised
  float* out;     ///< [row][head_dim], of the chunks so far, not normalised
  float* part_maximum;  ///< [row], base 2, of a chunk
  float* part_sum;      ///< [row], of a chunk
  float* maximum;       ///< [row], base 2, of the chunks so far
  float* sum;           ///< [row], of the chunks so far
  float* factor;        ///< [row]: of `out` when a chunk joins
  float* part_factor;   ///< [row]: of `part`
  float* behind;        ///< [row]: how far its position is behind the tile's first; for windows
  float* widened;       ///< [attention_widened][head_dim]: keys or values
  std::int64_t* widened_offset;
  std::int32_t stride;  ///< the longest chunk, up to a multiple of 16
  Piece pieces[2];
};

inline Scratch carve(float* memory, std::int64_t dim, std::int32_t longest) {
  Scratch s;
  s.stride = (longest + 15) / 16 * 16;
  const auto take = [&](std::int64_t floats) {
    float* taken = memory;
    memory += floats;
    return taken;
  };
  s.queries = take(attention_rows * dim);
  s.scores = take(std::int64_t{attention_rows} * s.stride);
  s.part = take(attention_rows * dim);
  s.out = take(attention_rows * dim);
  for (float** rows :
       {&s.part_maximum, &s.part_sum, &s.maximum, &s.sum, &s.factor, &s.part_factor, &s.behind}) {
    *rows = take(attention_rows);
  }
  for (Piece& piece : s.pieces) {
    piece.offset = reinterpret_cast<std::int64_t*>(take(2 * std::int64_t{s.stride}));
    piece.row_begin = reinterpret_cast<std::int32_t*>(take(s.stride));
    piece.row_end = reinterpret_cast<std::int32_t*>(take(s.stride));
    piece.behind_end = take(s.stride);
  }
  s.widened_offset = reinterpret_cast<std::int64_t*>(take(2 * attention_widened));
  s.widened = take(attention_widened * dim);
  return s;
}

struct Tile {
  const AttentionCall* call;
  const AttentionItem* item;
  std::int32_t kv_head;
  std::int32_t first_row;  ///< packed row of the text
  std::int32_t rows;
  std::int64_t dim;
  std::int32_t nearest = 0, farthest = 0;  ///< positions of its rows; for windows

  std::int32_t window() const { return call->rule.window; }
  std::int32_t query(std::int32_t row) const {
    return item->q_begin + (first_row + row) / call->group;
  }
  std::int32_t head(std::int32_t row) const {
    return kv_head * call->group + (first_row + row) % call->group;
  }
  /// The tile's first row that is of `query` or a later one, within [0, rows].
  std::int32_t row_of(std::int32_t query) const {
    return std::clamp((query - item->q_begin) * call->group - first_row, 0, rows);
  }
  const float* q_row(std::int32_t row) const {
    return call->q + query(row) * call->q_stride + head(row) * dim;
  }
};

/// Loops run over whole groups of tokens: the last one is repeated.
inline void repeat_last(std::int32_t tokens, std::int64_t* offset) {
  for (std::int32_t t = tokens; t % 16 != 0; ++t) offset[t] = offset[tokens - 1];
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

/// Fills `piece` with the tokens of `chunk` that some row of the tile sees. Leaving the others out
/// changes no sum: their weights would be 0.
inline void gather(const Tile& tile, const AttentionPlan::Chunk& chunk, Piece& piece) {
  // Distances count exactly in f32 up to here, which exceeds those in a tree by far.
  constexpr std::int64_t countable = 1 << 24;
  const AttentionPlan& plan = *tile.call->plan;
  const KvLayout& layout = *tile.call->layout;
  const auto page_size = static_cast<std::uint32_t>(layout.page_size);
  const std::int64_t page_floats = std::int64_t{layout.kv_heads} * page_size * tile.dim;
  const std::int64_t head_floats = std::int64_t{tile.kv_head} * page_size * tile.dim;
  const bool shifts = (page_size & (page_size - 1)) == 0;
  const int shift = __builtin_ctz(page_size);
  std::int32_t begin = tile.row_of(chunk.q_begin), end = tile.row_of(chunk.q_end);
  std::int32_t tokens = 0;
  piece.masked = piece.windowed = false;
  for (std::int32_t token = chunk.kv_begin; token < chunk.kv_end; ++token) {
    const auto i = static_cast<std::size_t>(token);
    if (!chunk.full) {
      begin = tile.row_of(plan.q_begin[i]);
      end = tile.row_of(plan.q_end[i]);
    }
    if (begin >= end) continue;
    if (tile.window() > 0) {
      const std::int64_t last = window_end(plan.position[i], tile.window());
      if (last <= tile.nearest) continue;
      piece.behind_end[tokens] =
          static_cast<float>(std::min<std::int64_t>(last - tile.nearest, countable));
      piece.windowed = piece.windowed || last <= tile.farthest;
    }
    piece.row_begin[tokens] = begin;
    piece.row_end[tokens] = end;
    piece.masked = piece.masked || begin > 0 || end < tile.rows;
    const auto slot = static_cast<std::uint32_t>(plan.slot[i]);
    const std::uint32_t page = shifts ? slot >> shift : slot / page_size;
    piece.offset[tokens++] =
        page * page_floats + head_floats + (slot - page * page_size) * tile.dim;
  }
  piece.tokens = tokens;
  if (tokens > 0) repeat_last(tokens, piece.offset);
}

/// Keys or values: token t's lie at first + offset[t].
template <DType kType>
struct TokenRows {
  const Stored<kType>* first;
  const std::int64_t* offset;
};

template <DType kType>
TokenRows<kType> rows_of(const void* layer, const Piece& piece) {
  return {static_cast<const Stored<kType>*>(layer), piece.offset};
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

/// Copies rows of tokens [begin, end), at most attention_widened, to s.widened. It pays where
/// several rows of the tile use them, or where elements are taken one by one.
template <DType kType>
HWY_NOINLINE TokenRows<DType::f32> widened(TokenRows<kType> from, std::int32_t begin,
                                           std::int32_t end, std::int64_t dim, const Ahead& ahead,
                                           const Scratch& s) {
  const Floats d;
  for (std::int32_t t = begin; t < end; ++t) {
    ahead.ask(t, 1);
    const Stored<kType>* row = from.first + from.offset[t];
    const std::int64_t place = (t - begin) * dim;
    float* to = s.widened + place;
    std::int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) hn::StoreU(load_as<kType>(d, row + i), d, to + i);
    for (; i < dim; ++i) to[i] = value_as<kType>(row + i);
    s.widened_offset[t - begin] = place;
  }
  repeat_last(end - begin, s.widened_offset);
  return {s.widened, s.widened_offset};
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
