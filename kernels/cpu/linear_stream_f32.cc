#include "kernels/cpu/linear_stream.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_stream_f32.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
constexpr int kLanes = hn::MaxLanes(Lanes());
constexpr int kVectors = kLanes >= 16 ? 4 : 2;
constexpr int kColumns = kLanes * kVectors;  ///< of a block per pass
constexpr int kMostRows = 6;

template <int kRows>
HWY_NOINLINE void block_rows(const float* w, const StreamProduct& p, std::int64_t row,
                             std::int64_t column) {
  const Lanes d;
  const float* x = static_cast<const float*>(p.x) + row * p.in;
  hn::Vec<Lanes> sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < p.in; ++i, w += stream_block) {
    hn::Vec<Lanes> weight[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hwy::Prefetch(w + 1024 + v * kLanes);
      weight[v] = hn::LoadU(d, w + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto value = hn::Set(d, x[r * p.in + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, weight[v], sum[r][v]);
    }
  }
  HWY_ALIGN float block[kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* y = p.y + (row + r) * p.out + column;
    if (column + kColumns <= p.out) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        auto total = sum[r][v];
        if (p.bias != nullptr) total = hn::Add(total, hn::LoadU(d, p.bias + column + v * kLanes));
        if (p.accumulate) total = hn::Add(total, hn::LoadU(d, y + v * kLanes));
        hn::StoreU(total, d, y + v * kLanes);
      }
      continue;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, block + v * kLanes);
    for (std::int64_t j = 0; j < p.out - column; ++j) {
      float total = block[j];
      if (p.bias != nullptr) total += p.bias[column + j];
      y[j] = p.accumulate ? y[j] + total : total;
    }
  }
}

void stream_blocks(const StreamProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  const std::int64_t block_elements = (p.in + 15) / 16 * 16 * stream_block;
  const std::int32_t groups = (p.rows + kMostRows - 1) / kMostRows;
  for (std::int64_t b = block_begin; b < block_end; ++b) {
    for (std::int64_t c = 0; c < stream_block; c += kColumns) {
      const float* w = static_cast<const float*>(p.weights) + b * block_elements + c;
      const std::int64_t column = b * stream_block + c;
      if (column >= p.out) break;
      for (std::int32_t g = 0; g < groups; ++g) {
        const std::int32_t row = p.rows * g / groups;
        switch (p.rows * (g + 1) / groups - row) {
          case 1:
            block_rows<1>(w, p, row, column);
            break;
          case 2:
            block_rows<2>(w, p, row, column);
            break;
          case 3:
            block_rows<3>(w, p, row, column);
            break;
          case 4:
            block_rows<4>(w, p, row, column);
            break;
          case 5:
            block_rows<5>(w, p, row, column);
            break;
          default:
            block_rows<6>(w, p, row, column);
            break;
        }
      }
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(stream_blocks);

void stream_f32(const StreamProduct& product, std::int64_t block_begin, std::int64_t block_end) {
  HWY_DYNAMIC_DISPATCH(stream_blocks)(product, block_begin, block_end);
}

}  // namespace coppice::cpu
#endif
