#include "kernels/cpu/block_fits.h"

#include <algorithm>

#include "kernels/cpu/instruction_set.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_fits.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// A lane is a group, so its sums are those of plain code. Products are not fused with additions.
HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr std::size_t kLanes = hn::MaxLanes(Tag());

/// To the nearest whole number, ties to even; of magnitudes below 2^22.
HWY_INLINE Vec whole(Vec value) {
  const Vec shift = hn::Set(Tag(), 0x1.8p23f);
  return hn::Sub(hn::Add(value, shift), shift);
}

HWY_INLINE Vec sum_with(Vec sum, Vec a, Vec b) { return hn::Add(sum, hn::Mul(a, b)); }

/// Up to kLanes groups of kCount numbers, number i of each side by side.
template <std::size_t kCount>
class Columns {
 public:
  Columns(const float* x, std::size_t groups) {
    for (std::size_t g = 0; g < kLanes; ++g) {
      for (std::size_t i = 0; i < kCount; ++i) {
        numbers_[i * kLanes + g] = g < groups ? x[g * kCount + i] : 0.0f;
      }
    }
  }
  HWY_INLINE Vec operator[](std::size_t i) const { return hn::Load(Tag(), numbers_ + i * kLanes); }

 private:
  HWY_ALIGN float numbers_[kCount * kLanes];
};

struct Range {
  Vec low, high;
};
/// The least and the most, the least at most 0 and the most at least `high`.
template <std::size_t kCount>
HWY_INLINE Range range_of(const Columns<kCount>& x, Vec high) {
  Range range{hn::Zero(Tag()), high};
  for (std::size_t i = 0; i < kCount; ++i) {
    range.low = hn::Min(range.low, x[i]);
    range.high = hn::Max(range.high, x[i]);
  }
  return range;
}

template <typename Fit, typename Set>
void put(std::size_t groups, Vec first, Vec second, Fit* fits, const Set& set) {
  HWY_ALIGN float firsts[kLanes], seconds[kLanes];
  hn::Store(first, Tag(), firsts);
  hn::Store(second, Tag(), seconds);
  for (std::size_t g = 0; g < std::min(groups, kLanes); ++g) fits[g] = set(firsts[g], seconds[g]);
}

void fit_affine(const float* numbers, std::size_t groups, AffineFit* fits) {
  constexpr Tag d;
  constexpr std::size_t kCount = 32;
  constexpr float kMost = 15.0f;
  const Columns<kCount> x(numbers, groups);
  const auto [low, high] = range_of(x, x[0]);
  const Vec range = hn::Sub(high, low), zero = hn::Zero(d), two = hn::Set(d, 2.0f);
  Vec squares = zero;
  for (std::size_t i = 0; i < kCount; ++i) squares = sum_with(squares, x[i], x[i]);
  const Vec plain = hn::Sqrt(hn::Div(squares, hn::Set(d, static_cast<float>(kCount))));
  const auto weight = [&](std::size_t i) { return hn::Add(plain, hn::Abs(x[i])); };
  Vec w_sum = zero, x_sum = zero, xx_sum = zero;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Vec w = weight(i), wx = hn::Mul(w, x[i]);
    w_sum = hn::Add(w_sum, w);
    x_sum = hn::Add(x_sum, wx);
    xx_sum = sum_with(xx_sum, wx, x[i]);
  }
  Vec best_scale = hn::Div(range, hn::Set(d, kMost)), best_offset = low;
  Vec least = hn::Inf(d);
  for (int candidate = 0; candidate < 15; ++candidate) {
    const float steps = kMost - 0.8f + 0.1f * static_cast<float>(candidate);
    const Vec inverse = hn::Div(hn::Set(d, steps), range);
    Vec q_sum = zero, qq_sum = zero, qx_sum = zero;
    for (std::size_t i = 0; i < kCount; ++i) {
      const Vec q = hn::Min(whole(hn::Mul(hn::Sub(x[i], low), inverse)), hn::Set(d, kMost));
      const Vec wq = hn::Mul(weight(i), q);
      q_sum = hn::Add(q_sum, wq);
      qq_sum = sum_with(qq_sum, wq, q);
      qx_sum = sum_with(qx_sum, wq, x[i]);
    }
    const Vec determinant = hn::Sub(hn::Mul(w_sum, qq_sum), hn::Mul(q_sum, q_sum));
    const Vec line = hn::Div(hn::Sub(hn::Mul(w_sum, qx_sum), hn::Mul(x_sum, q_sum)), determinant);
    const Vec shift = hn::Div(hn::Sub(hn::Mul(qq_sum, x_sum), hn::Mul(q_sum, qx_sum)), determinant);
    const auto above = hn::Gt(shift, zero);
    const Vec offset = hn::IfThenElse(above, zero, shift);
    const Vec scale = hn::IfThenElse(above, hn::Div(qx_sum, qq_sum), line);
    Vec error = hn::Mul(two, sum_with(hn::Mul(scale, qx_sum), offset, x_sum));
    error = sum_with(hn::Sub(xx_sum, error), hn::Mul(scale, scale), qq_sum);
    error = sum_with(error, hn::Mul(hn::Mul(two, scale), offset), q_sum);
    error = sum_with(error, hn::Mul(offset, offset), w_sum);
    const auto better = hn::And(hn::Gt(determinant, zero), hn::Lt(error, least));
    least = hn::IfThenElse(better, error, least);
    best_scale = hn::IfThenElse(better, scale, best_scale);
    best_offset = hn::IfThenElse(better, offset, best_offset);
  }
  const auto level = hn::Le(high, low);
  put(groups, hn::IfThenElse(level, zero, best_scale), hn::IfThenElse(level, low, best_offset),
      fits, [](float scale, float offset) {
        return AffineFit{scale, -offset};
      });
}

void fit_scales(const float* numbers, std::size_t groups, float* scales) {
  constexpr Tag d;
  constexpr std::size_t kCount = 16;
  const Columns<kCount> x(numbers, groups);
  const Vec zero = hn::Zero(d);
  Vec extreme = zero;
  for (std::size_t i = 0; i < kCount; ++i) {
    extreme = hn::IfThenElse(hn::Gt(hn::Abs(x[i]), hn::Abs(extreme)), x[i], extreme);
  }
  Vec best = zero, most = hn::Set(d, -1.0f);
  for (int candidate = -8; candidate <= 8; ++candidate) {
    const Vec inverse =
        hn::Div(hn::Set(d, -(32.0f + 0.1f * static_cast<float>(candidate))), extreme);
    Vec qx = zero, qq = zero;
    for (std::size_t i = 0; i < kCount; ++i) {
      const Vec q = hn::Clamp(whole(hn::Mul(x[i], inverse)), hn::Set(d, -32.0f), hn::Set(d, 31.0f));
      const Vec wq = hn::Mul(hn::Mul(x[i], x[i]), q);
      qx = sum_with(qx, wq, x[i]);
      qq = sum_with(qq, wq, q);
    }
    // What is left of the squares is less by this.
    const auto some = hn::Gt(qq, zero);
    const Vec gained = hn::IfThenElseZero(some, hn::Div(hn::Mul(qx, qx), qq));
    const auto better = hn::Gt(gained, most);
    most = hn::IfThenElse(better, gained, most);
    best = hn::IfThenElse(better, hn::IfThenElseZero(some, hn::Div(qx, qq)), best);
  }
  put(groups, hn::IfThenElse(hn::Eq(extreme, zero), zero, best), zero, scales,
      [](float scale, float) { return scale; });
}

void fit_grids(const float* numbers, std::size_t groups, GridFit* fits) {
  constexpr Tag d;
  constexpr std::size_t kCount = 32;
  const Columns<kCount> x(numbers, groups);
  const Vec zero = hn::Zero(d), last = hn::Set(d, 15.0f);
  const auto [low, high] = range_of(x, zero);
  const Vec range = hn::Sub(high, low);
  Vec best_scale = zero, best_zero = zero, most = hn::Set(d, -1.0f);
  for (int candidate = 0; candidate < 15; ++candidate) {
    const float steps = 14.2f + 0.1f * static_cast<float>(candidate);
    const Vec inverse = hn::Div(hn::Set(d, steps), range);
    const Vec below = hn::Floor(hn::Mul(hn::Neg(low), inverse));
    for (int side = 0; side < 2; ++side) {
      const Vec middle =
          hn::Clamp(hn::Add(below, hn::Set(d, static_cast<float>(side))), zero, last);
      Vec qx = zero, qq = zero;
      for (std::size_t i = 0; i < kCount; ++i) {
        const Vec number = hn::Clamp(hn::Add(whole(hn::Mul(x[i], inverse)), middle), zero, last);
        const Vec q = hn::Sub(number, middle);
        qx = sum_with(qx, q, x[i]);
        qq = sum_with(qq, q, q);
      }
      // What is left of the squares is less by this.
      const auto some = hn::Gt(qq, zero);
      const Vec scale = hn::IfThenElseZero(some, hn::Div(qx, qq));
      const Vec gained = hn::IfThenElseZero(some, hn::Mul(scale, qx));
      const auto better = hn::Gt(gained, most);
      most = hn::IfThenElse(better, gained, most);
      best_scale = hn::IfThenElse(better, scale, best_scale);
      best_zero = hn::IfThenElse(better, middle, best_zero);
    }
  }
  const auto usable = hn::Gt(range, hn::Set(d, 0x1p-100f));
  put(groups, hn::IfThenElseZero(usable, best_scale), hn::IfThenElseZero(usable, best_zero), fits,
      [](float scale, float middle) {
        return GridFit{scale, middle};
      });
}

template <std::size_t kCount, typename Fit>
HWY_INLINE void in_turn(void (*fit)(const float*, std::size_t, Fit*), const float* x,
                        std::size_t groups, Fit* fits) {
  for (std::size_t g = 0; g < groups; g += kLanes) fit(x + g * kCount, groups - g, fits + g);
}
void fit_all_affine(const float* x, std::size_t groups, AffineFit* fits) {
  in_turn<32>(fit_affine, x, groups, fits);
}
void fit_all_scales(const float* x, std::size_t groups, float* scales) {
  in_turn<16>(fit_scales, x, groups, scales);
}
void fit_all_grids(const float* x, std::size_t groups, GridFit* fits) {
  in_turn<32>(fit_grids, x, groups, fits);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(fit_all_affine);
HWY_EXPORT(fit_all_scales);
HWY_EXPORT(fit_all_grids);

void fit_affine(const float* x, std::size_t groups, AffineFit* fits) {
  (void)instruction_set();
  HWY_DYNAMIC_DISPATCH(fit_all_affine)(x, groups, fits);
}

void fit_scales(const float* x, std::size_t groups, float* scales) {
  (void)instruction_set();
  HWY_DYNAMIC_DISPATCH(fit_all_scales)(x, groups, scales);
}

void fit_grids(const float* x, std::size_t groups, GridFit* fits) {
  (void)instruction_set();
  HWY_DYNAMIC_DISPATCH(fit_all_grids)(x, groups, fits);
}

}  // namespace coppice::cpu
#endif
