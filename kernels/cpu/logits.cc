#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After the two above, which repeat this file for every instruction set.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "kernels/logits.h"

#ifndef COPPICE_LOGIT_PENALTIES
#define COPPICE_LOGIT_PENALTIES
namespace coppice {
// [vocab] counts by token, null: of none.
struct Penalties {
  const std::int32_t *seen = nullptr, *fresh = nullptr;
  float repetition = 1.0f, frequency = 0.0f, presence = 0.0f;
};
}  // namespace coppice
#endif

HWY_BEFORE_NAMESPACE();
namespace coppice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
constexpr F32 f32;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// The last, partial vector of [x, x + n), filled up with `filler`.
HWY_INLINE VF32 LoadTail(const float* x, std::size_t n, float filler) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
  for (std::size_t i = 0; i < hn::Lanes(f32); ++i) buffer[i] = i < n ? x[i] : filler;
  return hn::Load(f32, buffer);
}

HWY_INLINE void StoreTail(VF32 v, float* x, std::size_t n) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, f32, buffer);
  for (std::size_t i = 0; i < n; ++i) x[i] = buffer[i];
}

// NaN to minus infinity, plus infinity to the largest finite number.
HWY_INLINE VF32 Clean(VF32 x) {
  x = hn::IfThenElse(hn::IsNaN(x), hn::Set(f32, minus_infinity), x);
  return hn::Min(x, hn::Set(f32, FLT_MAX));
}

using VI32 = hn::VFromD<hn::RebindToSigned<F32>>;

HWY_INLINE VF32 PenalisedVector(VF32 x, VI32 seen, VI32 fresh, VF32 repetition, VF32 frequency,
                                VF32 presence) {
  const hn::RebindToSigned<F32> i32;
  const auto occurs = [&](VI32 count) { return hn::RebindMask(f32, hn::Gt(count, hn::Zero(i32))); };
  const VF32 repeated =
      hn::IfThenElse(hn::Gt(x, hn::Zero(f32)), hn::Div(x, repetition), hn::Mul(x, repetition));
  x = hn::IfThenElse(occurs(seen), repeated, x);
  const VF32 times = hn::Mul(hn::ConvertTo(f32, fresh), frequency);
  return hn::IfThenElse(occurs(fresh), hn::Sub(hn::Sub(x, times), presence), x);
}

// out = x after penalties by the counts of `p`, of which either may be null; out may not overlap x.
void Penalise(const float* x, const Penalties& p, std::size_t n, float* out) {
  const hn::RebindToSigned<F32> i32;
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 repetition = hn::Set(f32, p.repetition), frequency = hn::Set(f32, p.frequency),
             presence = hn::Set(f32, p.presence);
  const auto counts = [&](const std::int32_t* of, std::size_t at) {
    return of == nullptr ? hn::Zero(i32) : hn::LoadU(i32, of + at);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(PenalisedVector(Clean(hn::LoadU(f32, x + i)), counts(p.seen, i), counts(p.fresh, i),
                               repetition, frequency, presence),
               f32, out + i);
  }
  if (i < n) {
    const auto tail = [&](const std::int32_t* of) {
      HWY_ALIGN std::int32_t count[HWY_MAX_BYTES / sizeof(std::int32_t)] = {};
      if (of != nullptr) std::copy(of + i, of + n, count);
      return hn::Load(i32, count);
    };
    const VF32 v = Clean(LoadTail(x + i, n - i, minus_infinity));
    StoreTail(PenalisedVector(v, tail(p.seen), tail(p.fresh), repetition, frequency, presence),
              out + i, n - i);
  }
}

float Max(const float* x, std::size_t n) {
  const std::size_t lanes = hn::Lanes(f32);
  VF32 max0 = hn::Set(f32, minus_infinity), max1 = max0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = hn::Max(max0, Clean(hn::LoadU(f32, x + i)));
    max1 = hn::Max(max1, Clean(hn::LoadU(f32, x + i + lanes)));
  }
  for (; i < n; i += lanes) {
    max0 = hn::Max(max0, Clean(LoadTail(x + i, n - i, minus_infinity)));
  }
  return hn::GetLane(hn::MaxOfLanes(f32, hn::Max(max0, max1)));
}

// Index of the first x equal to `value`, n if there is none.
std::size_t FirstEqual(const float* x, std::size_t n, float value) {
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 wanted = hn::Set(f32, value);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto at = hn::FindFirstTrue(f32, hn::Eq(Clean(hn::LoadU(f32, x + i)), wanted));
    if (at >= 0) return i + static_cast<std::size_t>(at);
  }
  if (i < n) {
    const VF32 v = Clean(LoadTail(x + i, n - i, minus_infinity));
    const auto at = hn::FindFirstTrue(f32, hn::Eq(v, wanted));
    if (at >= 0 && i + static_cast<std::size_t>(at) < n) return i + static_cast<std::size_t>(at);
  }
  return n;
}

// out = exp((x - max) * inverse_temperature); returns their sum. x may be out.
double ExpSum(const float* x, std::size_t n, float max, float inverse_temperature, float* out) {
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 vmax = hn::Set(f32, max), scale = hn::Set(f32, inverse_temperature);
  // Floats are summed over short blocks only, blocks in double.
  const std::size_t block = 64 * lanes;
  double total = 0.0;
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = std::min(n, begin + block);
    VF32 sum0 = hn::Zero(f32), sum1 = hn::Zero(f32);
    std::size_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      const VF32 a = Clean(hn::LoadU(f32, x + i));
      const VF32 b = Clean(hn::LoadU(f32, x + i + lanes));
      const VF32 ea = hn::Exp(f32, hn::Mul(hn::Sub(a, vmax), scale));
      const VF32 eb = hn::Exp(f32, hn::Mul(hn::Sub(b, vmax), scale));
      hn::StoreU(ea, f32, out + i);
      hn::StoreU(eb, f32, out + i + lanes);
      sum0 = hn::Add(sum0, ea);
      sum1 = hn::Add(sum1, eb);
    }
    for (; i < end; i += lanes) {
      const std::size_t rest = std::min(lanes, end - i);
      const VF32 a = Clean(LoadTail(x + i, rest, minus_infinity));
      const VF32 ea = hn::Exp(f32, hn::Mul(hn::Sub(a, vmax), scale));
      StoreTail(ea, out + i, rest);
      sum0 = hn::Add(sum0, ea);
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(f32, hn::Add(sum0, sum1))));
  }
  return total;
}

void Scale(float* x, std::size_t n, float factor) {
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 f = hn::Set(f32, factor);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(f32, x + i), f), f32, x + i);
  for (; i < n; ++i) x[i] *= factor;
}

// groups[g] = largest of x[g], x[g + group_count], ..., whole rounds only. group_count is a
// multiple of 64 and at most n.
void GroupMaxima(const float* x, std::size_t n, std::size_t group_count, float* groups) {
  const std::size_t lanes = hn::Lanes(f32);
  const std::size_t rounds = n / group_count;
  for (std::size_t g = 0; g < group_count; g += lanes) {
    VF32 max = hn::Set(f32, minus_infinity);
    for (std::size_t r = 0; r < rounds; ++r) {
      max = hn::Max(max, Clean(hn::LoadU(f32, x + r * group_count + g)));
    }
    hn::StoreU(max, f32, groups + g);
  }
}

// Values >= least (and above minus infinity) and their indices, in order; returns how many.
// `values` and `indices` have room for n + 64 entries.
std::size_t Collect(const float* x, std::size_t n, float least, float* values,
                    std::int32_t* indices) {
  const hn::RebindToSigned<F32> i32;
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 vleast = hn::Set(f32, least), bottom = hn::Set(f32, minus_infinity);
  std::size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF32 v = Clean(hn::LoadU(f32, x + i));
    const auto keep = hn::And(hn::Ge(v, vleast), hn::Gt(v, bottom));
    if (hn::AllFalse(f32, keep)) continue;
    hn::CompressStore(hn::Iota(i32, static_cast<std::int32_t>(i)), hn::RebindMask(i32, keep), i32,
                      indices + count);
    count += hn::CompressStore(v, keep, f32, values + count);
  }
  for (; i < n; ++i) {
    const float v = std::isnan(x[i]) ? minus_infinity : std::min(x[i], FLT_MAX);
    if (v >= least && v > minus_infinity) {
      values[count] = v;
      indices[count++] = static_cast<std::int32_t>(i);
    }
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice {
namespace {

HWY_EXPORT(Penalise);
HWY_EXPORT(Max);
HWY_EXPORT(FirstEqual);
HWY_EXPORT(ExpSum);
HWY_EXPORT(Scale);
HWY_EXPORT(GroupMaxima);
HWY_EXPORT(Collect);

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

void ensure_size(std::vector<float>& v, std::size_t n) {
  if (v.size() < n) v.resize(n);
}

// What of the counts changes logits, and the tokens that they know.
struct Counted {
  Penalties penalties;
  std::size_t tokens = 0;
};

Counted counted_by(const SamplingParams& params, const TokenCounts* seen, const TokenCounts* fresh,
                   std::size_t vocab) {
  Counted of;
  const auto take = [&](const TokenCounts* counts, bool matters, const std::int32_t*& data) {
    if (counts == nullptr || !matters) return;
    data = counts->counts().data();
    of.tokens = std::min(of.tokens == 0 ? vocab : of.tokens, counts->counts().size());
  };
  take(seen, params.repetition_penalty != 1.0, of.penalties.seen);
  take(fresh, params.counts_new(), of.penalties.fresh);
  of.penalties.repetition = static_cast<float>(params.repetition_penalty);
  of.penalties.frequency = static_cast<float>(params.frequency_penalty);
  of.penalties.presence = static_cast<float>(params.presence_penalty);
  return of;
}

// The logits after penalties; `out` backs them where a penalty may change any.
const float* penalised(std::span<const float> logits, const SamplingParams& params,
                       const TokenCounts* seen, const TokenCounts* fresh, std::vector<float>& out) {
  const auto [penalties, counted] = counted_by(params, seen, fresh, logits.size());
  if (counted == 0) return logits.data();
  ensure_size(out, logits.size());
  HWY_DYNAMIC_DISPATCH(Penalise)(logits.data(), penalties, counted, out.data());
  std::copy(logits.begin() + static_cast<std::ptrdiff_t>(counted), logits.end(),
            out.begin() + static_cast<std::ptrdiff_t>(counted));
  return out.data();
}

float checked_max(const float* x, std::size_t n) {
  const float max = HWY_DYNAMIC_DISPATCH(Max)(x, n);
  const bool any =
      max > minus_infinity &&
      (max < FLT_MAX || std::any_of(x, x + n, [](float v) { return std::isfinite(v); }));
  if (!any) {
    throw_failure(
        cat("logits: none of ", n, " is finite; the model's weights or its arithmetic are broken"));
  }
  return max;
}

// Where a filter cuts the tokens, ordered by weight, equal ones by id: those above `weight`
// stay, and the first `ties` of those equal to it.
struct Cut {
  float weight = 0.0f;
  std::size_t ties = std::numeric_limits<std::size_t>::max();
};

// The cut after the fewest largest weights whose mass reaches `needed`, at least one of them.
// Quickselect by mass; `weights` is permuted.
Cut mass_cut(std::span<float> weights, double needed) {
  needed = std::max(needed, DBL_MIN);
  double above = 0.0;  // mass of the weights known to stay
  float* begin = weights.data();
  float* end = begin + weights.size();
  while (begin < end) {
    const float a = *begin, b = begin[(end - begin) / 2], c = end[-1];
    const float pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    // [begin, greater_end) > pivot, [greater_end, equal_end) == pivot.
    float* greater_end = begin;
    double greater_mass = 0.0;
    for (float* it = begin; it < end; ++it) {
      if (*it > pivot) {
        greater_mass += static_cast<double>(*it);
        std::swap(*it, *greater_end++);
      }
    }
    float* equal_end = std::partition(greater_end, end, [&](float w) { return w == pivot; });
    const auto equal_count = static_cast<std::size_t>(equal_end - greater_end);
    const double weight = static_cast<double>(pivot);
    if (greater_end > begin && above + greater_mass >= needed) {
      end = greater_end;
    } else if (above + greater_mass + static_cast<double>(equal_count) * weight >= needed) {
      const double missing = needed - above - greater_mass;
      auto ties = std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(missing / weight)), 1,
                                          equal_count);
      while (ties > 1 && above + greater_mass + static_cast<double>(ties - 1) * weight >= needed) {
        --ties;
      }
      return {pivot, ties};
    } else {
      above += greater_mass + static_cast<double>(equal_count) * weight;
      begin = equal_end;
    }
  }
  return {};  // rounding: all of them together fall short
}

// Reduces `count` collected tokens (ids ascending) to the `k` largest; returns how many stay.
std::size_t keep_largest(std::size_t k, std::size_t count, LogitsScratch& scratch) {
  if (count <= k) return count;
  float* values = scratch.values.data();
  std::int32_t* order = scratch.order.data();
  scratch.selection.assign(values, values + count);
  const auto kth = scratch.selection.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.selection.begin(), kth, scratch.selection.end(), std::greater<>());
  const float edge = *kth;
  const auto greater = static_cast<std::size_t>(
      std::count_if(values, values + count, [&](float v) { return v > edge; }));
  std::size_t ties = k - greater, kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] < edge || (values[i] == edge && ties == 0)) continue;
    if (values[i] == edge) --ties;
    values[kept] = values[i];
    order[kept++] = order[i];
  }
  return kept;
}

// A value that at least k of x reach, close to the k-th largest: the k-th largest of the maxima
// of more than k disjoint groups. Minus infinity where that would not pay.
float top_k_bound(const float* x, std::size_t n, std::size_t k, LogitsScratch& scratch) {
  const std::size_t groups = (4 * k + 63) / 64 * 64;
  if (groups * 2 > n) return minus_infinity;
  ensure_size(scratch.selection, groups);
  HWY_DYNAMIC_DISPATCH(GroupMaxima)(x, n, groups, scratch.selection.data());
  const auto begin = scratch.selection.begin();
  const auto kth = begin + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(begin, kth, begin + static_cast<std::ptrdiff_t>(groups), std::greater<>());
  return *kth;
}

}  // namespace

void process_logits(std::span<const float> logits, const SamplingParams& params,
                    const TokenCounts* seen, LogitsScratch& scratch, std::span<float> probs,
                    const TokenCounts* fresh) {
  const std::size_t n = logits.size();
  const float* x = penalised(logits, params, seen, fresh, scratch.penalised);
  const float max = checked_max(x, n);
  if (params.temperature <= 0.0) {
    const std::size_t argmax = HWY_DYNAMIC_DISPATCH(FirstEqual)(x, n, max);
    std::fill(probs.begin(), probs.end(), 0.0f);
    probs[argmax] = 1.0f;
    return;
  }
  const float inverse_temperature =
      static_cast<float>(std::min(1.0 / params.temperature, static_cast<double>(FLT_MAX)));
  if (!params.filters()) {
    const double sum = HWY_DYNAMIC_DISPATCH(ExpSum)(x, n, max, inverse_temperature, probs.data());
    HWY_DYNAMIC_DISPATCH(Scale)(probs.data(), n, static_cast<float>(1.0 / sum));
    return;
  }

  // Filters leave a short list: its weights in `values`, its token ids, ascending, in `order`.
  ensure_size(scratch.values, n + 64);
  if (scratch.order.size() < n + 64) scratch.order.resize(n + 64);
  float* values = scratch.values.data();
  std::int32_t* order = scratch.order.data();
  std::size_t count = 0;
  double total = 0.0;
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < n) {
    const auto k = static_cast<std::size_t>(params.top_k);
    const float bound = top_k_bound(x, n, k, scratch);
    count = HWY_DYNAMIC_DISPATCH(Collect)(x, n, bound, values, order);
    count = keep_largest(k, count, scratch);
    total = HWY_DYNAMIC_DISPATCH(ExpSum)(values, count, max, inverse_temperature, values);
  } else {
    total = HWY_DYNAMIC_DISPATCH(ExpSum)(x, n, max, inverse_temperature, probs.data());
    // All weights below (1 - top_p) / n of the total weigh less than what top-p drops.
    double least = 0.0;
    if (params.top_p < 1.0) {
      least = 0.999 * (1.0 - std::max(params.top_p, 0.0)) * total / static_cast<double>(n);
    }
    least = std::max(least, 0.999 * std::min(params.min_p, 1.0));
    const auto bound =
        std::max(static_cast<float>(least), std::numeric_limits<float>::denorm_min());
    count = HWY_DYNAMIC_DISPATCH(Collect)(probs.data(), n, bound, values, order);
  }
  Cut cut;
  if (params.top_p < 1.0) {
    scratch.selection.assign(values, values + count);
    cut = mass_cut(scratch.selection, params.top_p * total);
  }
  const double largest = static_cast<double>(*std::max_element(values, values + count));
  const double least = largest * std::min(params.min_p, 1.0);
  std::size_t kept = 0;
  double mass = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const float weight = values[i];
    if (weight < cut.weight || static_cast<double>(weight) < least) continue;
    if (weight == cut.weight && cut.ties-- == 0) {
      cut.ties = 0;
      continue;
    }
    mass += static_cast<double>(weight);
    values[kept] = weight;
    order[kept++] = order[i];
  }
  std::fill(probs.begin(), probs.end(), 0.0f);
  const auto factor = static_cast<float>(1.0 / mass);
  for (std::size_t i = 0; i < kept; ++i) {
    probs[static_cast<std::size_t>(order[i])] = values[i] * factor;
  }
}

TokenId argmax_logits(std::span<const float> logits, const SamplingParams& params,
                      const TokenCounts* seen, const TokenCounts* fresh) {
  const auto [all, known] = counted_by(params, seen, fresh, logits.size());
  if (known == 0) {
    const float max = checked_max(logits.data(), logits.size());
    return static_cast<TokenId>(
        HWY_DYNAMIC_DISPATCH(FirstEqual)(logits.data(), logits.size(), max));
  }
  checked_max(logits.data(), logits.size());
  // By blocks on the stack, so that penalised logits need no scratch memory.
  constexpr std::size_t block = 2048;
  float buffer[block];
  float best = minus_infinity;
  std::size_t best_at = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += block) {
    const std::size_t size = std::min(block, logits.size() - begin);
    const std::size_t counted = std::min(size, known - std::min(begin, known));
    std::copy_n(logits.data() + begin, size, buffer);
    if (counted > 0) {
      Penalties here = all;
      if (here.seen != nullptr) here.seen += begin;
      if (here.fresh != nullptr) here.fresh += begin;
      HWY_DYNAMIC_DISPATCH(Penalise)(logits.data() + begin, here, counted, buffer);
    }
    const float max = HWY_DYNAMIC_DISPATCH(Max)(buffer, size);
    if (max > best) {
      best = max;
      best_at = begin + HWY_DYNAMIC_DISPATCH(FirstEqual)(buffer, size, max);
    }
  }
  return static_cast<TokenId>(best_at);
}

}  // namespace coppice
#endif  // HWY_ONCE
