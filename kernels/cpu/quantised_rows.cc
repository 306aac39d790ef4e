#include "kernels/cpu/quantised_rows.h"

#include <cstddef>
#include <type_traits>

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantised_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One row.
void quantise_row(const float* x, std::int64_t groups, RowPlace to) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> narrow;
  constexpr int kLanes = hn::MaxLanes(d);
  const std::int64_t step = to.tile_rows * static_cast<std::int64_t>(sizeof(RowGroup<1>));
  for (std::int64_t g = 0; g < groups; ++g) {
    // Magnitudes compare as integers, and NaN is the largest.
    auto most = hn::Zero(di);
    for (int i = 0; i < group_inputs; i += kLanes) {
      most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
    }
    const float largest = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, most)));
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    // Nothing is left of numbers so small that this overflows.
    const bool usable = inverse <= 3.0e38f;
    const float scale = usable ? largest / 127.0f : 0.0f;
    *to.scale = scale;
    const auto factor = hn::Set(d, usable ? inverse : 0.0f);
    std::int32_t sums[3] = {0, 0, 0};
    for (int half = 0; half < 2; ++half) {
      auto sum = hn::Zero(di);
      for (int i = 16 * half; i < 16 * half + 16; i += kLanes) {
        const auto number = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
        const auto bytes = hn::DemoteTo(narrow, number);
        sum = hn::Add(sum, hn::PromoteTo(di, bytes));
        hn::StoreU(bytes, narrow, to.numbers + i);
      }
      sums[1 + half] = hn::GetLane(hn::SumOfLanes(di, sum));
    }
    sums[0] = sums[1] + sums[2];
    for (int s = 0; s < 3; ++s) {
      to.negated_sums[s * to.tile_rows] = -sums[s];
      to.scaled_sums[s * to.tile_rows] = scale * static_cast<float>(sums[s]);
    }
    x += group_inputs;
    const auto advance = [step](auto*& pointer) {
      using Pointer = std::remove_reference_t<decltype(pointer)>;
      pointer = reinterpret_cast<Pointer>(reinterpret_cast<char*>(pointer) + step);
    };
    advance(to.numbers);
    advance(to.scale);
    advance(to.negated_sums);
    advance(to.scaled_sums);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(quantise_row);

void QuantisedRows::assign(const float* x, std::int32_t rows, std::int64_t in, Workers& workers) {
  rows_ = rows;
  in_ = in;
  const auto bytes = static_cast<std::size_t>(rows * groups()) * sizeof(RowGroup<1>);
  if (data_.size() < bytes) data_.resize(bytes);
  workers.run_rows(rows, in, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto first = static_cast<std::int32_t>(r / most_tile_rows * most_tile_rows);
      const std::int64_t width = tile_rows(first), in_tile = r - first;
      std::byte* const tile = data_.data() + (this->tile(first) - data_.data());
      const auto at = [&](std::int64_t row_bytes) { return tile + width * row_bytes; };
      RowPlace to;
      to.numbers = reinterpret_cast<std::int8_t*>(tile) + in_tile * group_inputs;
      to.scale = reinterpret_cast<float*>(at(offsetof(RowGroup<1>, scales))) + in_tile;
      to.negated_sums =
          reinterpret_cast<std::int32_t*>(at(offsetof(RowGroup<1>, negated_sums))) + in_tile;
      to.scaled_sums = reinterpret_cast<float*>(at(offsetof(RowGroup<1>, scaled_sums))) + in_tile;
      to.tile_rows = width;
      HWY_DYNAMIC_DISPATCH(quantise_row)(x + r * in, groups(), to);
    }
  });
}

}  // namespace coppice::cpu
#endif
