// Products in f32 of weights in any type. A tile of rows x columns of sums stays in registers
// while the weights pass by, widened as they come: on the machines measured the shifts and masks
// run beside the multiplications, so that copies of widened weights would gain nothing.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/weight_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_f32.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Lanes>;
constexpr int kLanes = hn::MaxLanes(Lanes());
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM;  ///< 32, else 16
constexpr int kMostRows = 6;
constexpr std::int64_t kLine = 64;
/// Weights that stay in the first-level cache while tile after tile passes over them.
constexpr std::int64_t kChunkBytes = 32 << 10;
/// How far ahead weights that come in order are fetched: some 200 ns at a core's share of the
/// memory's bandwidth.
constexpr std::int64_t kAhead = 12 << 10;
/// Inputs of quantised weights that are dequantised at a time: the longest blocks'.
constexpr std::int64_t kExpandedInputs = 256;
/// Rows whose sums are kept from chunk to chunk.
constexpr std::int32_t kMostCarriedRows = 96;

/// Columns per tile, in vectors: sums, weights and broadcasts share the registers.
constexpr int vectors_of(int rows) {
  if (kManyRegisters) return 4;
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}

/// A stored type: `inputs` of a column lie together.
struct StoredF32 {
  using Element = float;
  static constexpr int inputs = 1;
  static HWY_INLINE Vector load(const Element* at, int) { return hn::LoadU(Lanes(), at); }
};
struct StoredF16 {
  using Element = std::uint16_t;
  static constexpr int inputs = 1;
  static HWY_INLINE Vector load(const Element* at, int) {
    const hn::Rebind<hwy::float16_t, Lanes> half;
    return hn::PromoteTo(Lanes(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(at)));
  }
};
struct StoredBf16 {
  using Element = std::uint16_t;
  static constexpr int inputs = 2;
  static HWY_INLINE Vector load(const Element* at, int input) {
    const hn::RebindToUnsigned<Lanes> bits;
    const auto pair = hn::LoadU(bits, reinterpret_cast<const std::uint32_t*>(at));
    return hn::BitCast(
        Lanes(), input == 0 ? hn::ShiftLeft<16>(pair) : hn::And(pair, hn::Set(bits, 0xffff0000u)));
  }
};

/// Inputs [begin, end) of a block, which tile after tile passes over while they stay in the
/// caches; meanwhile the weights that come next are fetched, each tile its share.
struct Chunk {
  const LinearProduct& product;
  const char* block;
  std::int64_t column;  ///< first of the block
  std::int64_t begin, end;
  int tiles = 1;                    ///< that share fetching
  const char* fetched = nullptr;    ///< what is asked for next
  const char* fetch_end = nullptr;  ///< end of what the caller multiplies
  float* carried = nullptr;         ///< [rows][64] sums of the block, from chunk to chunk
};

template <int kRows, int kVectors>
HWY_INLINE void finish(const LinearProduct& p, std::int64_t row, std::int64_t column,
                       Vector (&sum)[kRows][kVectors]) {
  const Lanes d;
  constexpr int columns = kVectors * kLanes;
  const std::int64_t out = p.weights.out;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* y = p.y + (row + r) * p.stride + column;
    if (column + columns <= out) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        auto total = sum[r][v];
        if (p.bias != nullptr) total = hn::Add(total, hn::LoadU(d, p.bias + column + v * kLanes));
        if (p.accumulate) total = hn::Add(total, hn::LoadU(d, y + v * kLanes));
        hn::StoreU(total, d, y + v * kLanes);
      }
      continue;
    }
    HWY_ALIGN float sums[columns];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, sums + v * kLanes);
    for (std::int64_t j = 0; j < out - column; ++j) {
      float total = sums[j];
      if (p.bias != nullptr) total += p.bias[column + j];
      y[j] = p.accumulate ? y[j] + total : total;
    }
  }
}

/// Rows [row, row + kRows) and a tile's columns from `column` on; `carried` [kRows][64].
template <class Stored, int kRows>
HWY_NOINLINE void tile(Chunk& chunk, std::int64_t row, std::int64_t column, float* carried) {
  constexpr int kVectors = vectors_of(kRows);
  constexpr int kInputs = Stored::inputs;
  constexpr std::int64_t kElement = sizeof(typename Stored::Element);
  constexpr std::int64_t kStride = 8;  // inputs between fetches
  const Lanes d;
  const LinearProduct& p = chunk.product;
  const std::int64_t in = p.weights.in;
  const std::int64_t offset = column - chunk.column;
  carried += offset;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] =
          chunk.begin == 0 ? hn::Zero(d) : hn::LoadU(d, carried + r * block_width + v * kLanes);
    }
  }
  const auto* w = reinterpret_cast<const typename Stored::Element*>(chunk.block) +
                  chunk.begin * block_width + offset * kInputs;
  const float* x = static_cast<const float*>(p.x) + row * in;
  const auto multiply = [&](std::int64_t i, int input) HWY_ATTR {
    Vector weight[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) weight[v] = Stored::load(w + v * kLanes * kInputs, input);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto value = hn::Set(d, x[r * in + i + input]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, weight[v], sum[r][v]);
    }
  };
  const std::int64_t fetch_bytes =
      (kStride * block_width * kElement / chunk.tiles + kLine - 1) / kLine * kLine;
  const char* fetched = chunk.fetched;
  std::int64_t i = chunk.begin;
  while (i + kInputs <= chunk.end) {
    const char* until = std::min(fetched + fetch_bytes, chunk.fetch_end);
    for (; fetched < until; fetched += kLine) hwy::Prefetch(fetched);
    const std::int64_t stop = std::min(i + kStride, chunk.end - kInputs + 1);
    for (; i < stop; i += kInputs, w += block_width * kInputs) {
#pragma GCC unroll 2
      for (int input = 0; input < kInputs; ++input) multiply(i, input);
    }
  }
  chunk.fetched = fetched;
  if (i < chunk.end) multiply(i, 0);
  if (chunk.end == in) {
    finish(p, row, column, sum);
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, carried + r * block_width + v * kLanes);
    }
  }
}

constexpr int columns_of(int rows) { return vectors_of(rows) * kLanes; }

/// All columns of the block.
template <class Stored, int kRows>
void tiles(Chunk& chunk, std::int64_t row, float* carried) {
  const std::int64_t end = std::min(chunk.column + block_width, chunk.product.weights.out);
  for (std::int64_t column = chunk.column; column < end; column += columns_of(kRows)) {
    tile<Stored, kRows>(chunk, row, column, carried);
  }
}

template <class Stored>
void tiles_of(Chunk& chunk, std::int64_t row, std::int64_t rows, float* carried) {
  switch (rows) {
    case 1:
      return tiles<Stored, 1>(chunk, row, carried);
    case 2:
      return tiles<Stored, 2>(chunk, row, carried);
    case 3:
      return tiles<Stored, 3>(chunk, row, carried);
    case 4:
      return tiles<Stored, 4>(chunk, row, carried);
    case 5:
      return tiles<Stored, 5>(chunk, row, carried);
    default:
      return tiles<Stored, kMostRows>(chunk, row, carried);
  }
}

/// Quantised weights: chunks of them are dequantised, as each is reached, to lie like f32.
struct Dequantised : StoredF32 {};

template <class Stored>
void blocks(const LinearProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  constexpr bool dequantises = std::is_same_v<Stored, Dequantised>;
  const std::int64_t in = p.weights.in;
  constexpr std::int64_t input_bytes = block_width * sizeof(typename Stored::Element);
  const char* const weights = p.weights.data.as<char>();
  HWY_ALIGN float carried[kMostCarriedRows * block_width];
  HWY_ALIGN float expanded[dequantises ? kExpandedInputs * block_width : 1];
  for (std::int64_t b = block_begin; b < block_end; ++b) {
    for (std::int32_t first = 0; first < p.rows; first += kMostCarriedRows) {
      const std::int32_t rows = std::min(kMostCarriedRows, p.rows - first);
      const std::int32_t groups = (rows + kMostRows - 1) / kMostRows;
      Chunk chunk{p, weights + b * p.weights.block_bytes(), b * block_width, 0, 0};
      chunk.tiles = groups * static_cast<int>(block_width / columns_of(rows / groups));
      chunk.fetch_end = weights + block_end * p.weights.block_bytes();
      // With one tile the weights come in order, and are fetched a little ahead.
      const std::int64_t inputs = dequantises        ? kExpandedInputs
                                  : chunk.tiles == 1 ? in
                                                     : kChunkBytes / input_bytes;
      for (; chunk.begin < in; chunk.begin = chunk.end) {
        chunk.end = std::min(in, chunk.begin + inputs);
        if constexpr (dequantises) {
          expand_block(p.weights, b, chunk.begin, chunk.end, expanded);
          chunk.block = reinterpret_cast<const char*>(expanded) - chunk.begin * input_bytes;
          chunk.fetched = chunk.fetch_end;
        } else {
          chunk.fetched = chunk.block + (chunk.tiles == 1 ? kAhead : chunk.end * input_bytes);
        }
        for (std::int32_t g = 0; g < groups; ++g) {
          const std::int32_t row = rows * g / groups;
          tiles_of<Stored>(chunk, first + row, rows * (g + 1) / groups - row,
                           carried + row * block_width);
        }
      }
    }
  }
}

void blocks_of_any(const LinearProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  switch (p.weights.format) {
    case WeightFormat::f32:
      return blocks<StoredF32>(p, block_begin, block_end);
    case WeightFormat::f16:
      return blocks<StoredF16>(p, block_begin, block_end);
    case WeightFormat::bf16:
      return blocks<StoredBf16>(p, block_begin, block_end);
    default:
      return blocks<Dequantised>(p, block_begin, block_end);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(blocks_of_any);

void multiply_f32(const LinearProduct& product, std::int64_t block_begin, std::int64_t block_end) {
  HWY_DYNAMIC_DISPATCH(blocks_of_any)(product, block_begin, block_end);
}

}  // namespace coppice::cpu
#endif
