#include "kernels/cpu/quantised_rows.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantised_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One row.
void quantise_row(const float* x, std::int64_t groups, std::int8_t* numbers, float* scales,
                  std::int32_t* half_sums) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> narrow;
  constexpr int kLanes = hn::MaxLanes(d);
  for (std::int64_t g = 0; g < groups; ++g) {
    // Magnitudes compare as integers, and NaN is the largest.
    auto most = hn::Zero(di);
    for (int i = 0; i < group_inputs; i += kLanes) {
      most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
    }
    const float largest =
        hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, most)));
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    // Of numbers so small that this overflows nothing is left.
    const bool usable = inverse <= 3.0e38f;
    scales[g] = usable ? largest / 127.0f : 0.0f;
    const auto factor = hn::Set(d, usable ? inverse : 0.0f);
    for (int half = 0; half < 2; ++half) {
      auto sum = hn::Zero(di);
      for (int i = 16 * half; i < 16 * half + 16; i += kLanes) {
        const auto number = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
        sum = hn::Add(sum, number);
        hn::StoreU(hn::DemoteTo(narrow, number), narrow, numbers + i);
      }
      half_sums[2 * g + half] = hn::GetLane(hn::SumOfLanes(di, sum));
    }
    x += group_inputs;
    numbers += group_inputs;
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(quantise_row);

void QuantisedRows::assign(const float* x, std::int32_t rows, std::int64_t in, Workers& workers) {
  in_ = in;
  const auto grow = [](auto& values, std::int64_t count) {
    if (std::ssize(values) < count) values.resize(static_cast<std::size_t>(count));
  };
  grow(numbers_, rows * in);
  grow(scales_, rows * groups());
  grow(half_sums_, 2 * rows * groups());
  workers.run_rows(rows, in, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(quantise_row)
      (x + r * in, groups(), numbers_.data() + r * in, scales_.data() + r * groups(),
       half_sums_.data() + 2 * r * groups());
    }
  });
}

}  // namespace coppice::cpu
#endif
