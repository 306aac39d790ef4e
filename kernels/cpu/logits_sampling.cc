#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits_sampling.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After the two above, which repeat this file for every instruction set.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "kernels/logits.h"

HWY_BEFORE_NAMESPACE();
namespace coppice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;
using F32Half = hn::Rebind<float, F64>;  // as many floats as a vector holds doubles
using F32 = hn::ScalableTag<float>;
using VF64 = hn::Vec<F64>;
using VF32 = hn::Vec<F32>;
constexpr F64 f64;
constexpr F32Half f32_half;
constexpr F32 f32;

HWY_INLINE VF64 LoadPromoted(const float* x) { return hn::PromoteTo(f64, hn::LoadU(f32_half, x)); }

HWY_INLINE double Sum(VF64 a, VF64 b, VF64 c, VF64 d) {
  return hn::GetLane(hn::SumOfLanes(f64, hn::Add(hn::Add(a, b), hn::Add(c, d))));
}

double Mass(const float* x, std::size_t n) {
  const std::size_t lanes = hn::Lanes(f64);
  VF64 s0 = hn::Zero(f64), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, LoadPromoted(x + i));
    s1 = hn::Add(s1, LoadPromoted(x + i + lanes));
    s2 = hn::Add(s2, LoadPromoted(x + i + 2 * lanes));
    s3 = hn::Add(s3, LoadPromoted(x + i + 3 * lanes));
  }
  double tail = 0.0;
  for (; i < n; ++i) tail += static_cast<double>(x[i]);
  return Sum(s0, s1, s2, s3) + tail;
}

void BlockMasses(const float* x, std::size_t n, std::size_t block, double* masses) {
  for (std::size_t begin = 0; begin < n; begin += block) {
    *masses++ = Mass(x + begin, std::min(block, n - begin));
  }
}

ResidualMass Residual(const float* target, const float* draft, std::size_t n, double scale) {
  const std::size_t lanes = hn::Lanes(f64);
  const VF64 c = hn::Set(f64, scale), zero = hn::Zero(f64);
  VF64 r0 = zero, r1 = zero, d0 = zero, d1 = zero;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF64 a = LoadPromoted(draft + i), b = LoadPromoted(draft + i + lanes);
    r0 = hn::Add(r0, hn::Max(zero, hn::Sub(LoadPromoted(target + i), hn::Mul(c, a))));
    r1 = hn::Add(r1, hn::Max(zero, hn::Sub(LoadPromoted(target + i + lanes), hn::Mul(c, b))));
    d0 = hn::Add(d0, a);
    d1 = hn::Add(d1, b);
  }
  ResidualMass mass{Sum(r0, r1, zero, zero), Sum(d0, d1, zero, zero)};
  for (; i < n; ++i) {
    const double d = static_cast<double>(draft[i]);
    mass.residual += std::max(0.0, static_cast<double>(target[i]) - scale * d);
    mass.draft += d;
  }
  return mass;
}

HWY_INLINE float MaxLane(VF32 a, VF32 b) { return hn::GetLane(hn::MaxOfLanes(f32, hn::Max(a, b))); }

// Largest x[i] * noise[i]; no noise: largest x[i]. 0 where there is nothing.
template <bool kNoise>
HWY_INLINE float LargestProduct(const float* x, const float* noise, std::size_t n) {
  const std::size_t lanes = hn::Lanes(f32);
  VF32 m0 = hn::Zero(f32), m1 = m0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    VF32 a = hn::LoadU(f32, x + i), b = hn::LoadU(f32, x + i + lanes);
    if (kNoise) {
      a = hn::Mul(a, hn::LoadU(f32, noise + i));
      b = hn::Mul(b, hn::LoadU(f32, noise + i + lanes));
    }
    m0 = hn::Max(m0, a);
    m1 = hn::Max(m1, b);
  }
  float max = MaxLane(m0, m1);
  for (; i < n; ++i) max = std::max(max, kNoise ? x[i] * noise[i] : x[i]);
  return max;
}

void BlockMaxima(const float* x, const float* noise, std::size_t n, std::size_t block,
                 double* maxima) {
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t size = std::min(block, n - begin);
    *maxima++ =
        static_cast<double>(noise != nullptr ? LargestProduct<true>(x + begin, noise + begin, size)
                                             : LargestProduct<false>(x + begin, nullptr, size));
  }
}

// Adds to `sums` those of e^x, x e^x and x^2 e^x, where x = power log(probs * noise / largest).
// Products of 0 add nothing.
void SumPowers(const float* probs, const float* noise, std::size_t n, float largest, float power,
               double* sums) {
  const std::size_t lanes = hn::Lanes(f32);
  const VF32 scale = hn::Set(f32, 1.0f / largest), exponent = hn::Set(f32, power);
  const VF32 zero = hn::Zero(f32);
  VF32 sum0 = zero, sum1 = zero, sum2 = zero;
  const auto add = [&](VF32 product) HWY_ATTR {
    const VF32 ratio = hn::Mul(product, scale);
    const auto some = hn::Ge(ratio, hn::Set(f32, 1e-37f));
    const VF32 x = hn::Mul(exponent, hn::Log(f32, hn::IfThenElse(some, ratio, scale)));
    const VF32 weight = hn::IfThenElseZero(some, hn::Exp(f32, x));
    const VF32 first = hn::Mul(x, weight);
    sum0 = hn::Add(sum0, weight);
    sum1 = hn::Add(sum1, first);
    sum2 = hn::MulAdd(x, first, sum2);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    VF32 product = hn::LoadU(f32, probs + i);
    if (noise != nullptr) product = hn::Mul(product, hn::LoadU(f32, noise + i));
    add(product);
  }
  if (i < n) {
    HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
    for (std::size_t j = 0; i + j < n; ++j) {
      rest[j] = noise != nullptr ? probs[i + j] * noise[i + j] : probs[i + j];
    }
    add(hn::Load(f32, rest));
  }
  const auto total = [](VF32 v) HWY_ATTR {
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(f32, v)));
  };
  sums[0] += total(sum0);
  sums[1] += total(sum1);
  sums[2] += total(sum2);
}

std::size_t ArgmaxProduct(const float* x, const float* noise, std::size_t n) {
  const std::size_t lanes = hn::Lanes(f32);
  const float max = LargestProduct<true>(x, noise, n);
  const VF32 wanted = hn::Set(f32, max);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF32 product = hn::Mul(hn::LoadU(f32, x + i), hn::LoadU(f32, noise + i));
    const auto at = hn::FindFirstTrue(f32, hn::Eq(product, wanted));
    if (at >= 0) return i + static_cast<std::size_t>(at);
  }
  for (; i < n; ++i) {
    if (x[i] * noise[i] == max) return i;
  }
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice {
namespace {

HWY_EXPORT(Mass);
HWY_EXPORT(BlockMasses);
HWY_EXPORT(Residual);
HWY_EXPORT(BlockMaxima);
HWY_EXPORT(SumPowers);
HWY_EXPORT(ArgmaxProduct);

// Masses by block find the block, then weights one by one find the token in it. Where rounding
// carries u past the block's last weight, the next token that has weight is taken, else the
// last one before. -1 when nothing has weight.
template <typename BlockMass, typename Weight>
TokenId inverse_cdf(std::size_t n, double u, BlockMass block_mass, Weight weight) {
  constexpr std::size_t most_blocks = 512;
  const std::size_t block = std::max<std::size_t>(256, (n + most_blocks - 1) / most_blocks);
  double masses[most_blocks];
  const std::size_t blocks = (n + block - 1) / block;
  double total = 0.0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = b * block;
    masses[b] = block_mass(begin, std::min(block, n - begin));
    total += masses[b];
  }
  if (!(total > 0.0)) return -1;
  const double wanted = u * total;
  double sum = 0.0;
  std::size_t b = 0;
  for (; b + 1 < blocks && sum + masses[b] <= wanted; ++b) sum += masses[b];
  for (std::size_t i = b * block; i < n; ++i) {
    const double w = weight(i);
    sum += w;
    if (w > 0.0 && sum > wanted) return static_cast<TokenId>(i);
  }
  for (std::size_t i = n; i-- > 0;) {
    if (weight(i) > 0.0) return static_cast<TokenId>(i);
  }
  return -1;
}

void check_equal_length(const char* what, std::size_t a, std::size_t b) {
  if (a != b) throw_failure(cat(what, ": rows of ", a, " and ", b, " entries; they must agree"));
}

}  // namespace

TokenId sample_inverse_cdf(std::span<const float> probs, double u) {
  const TokenId token = inverse_cdf(
      probs.size(), u,
      [&](std::size_t begin, std::size_t count) {
        return HWY_DYNAMIC_DISPATCH(Mass)(probs.data() + begin, count);
      },
      [&](std::size_t i) { return static_cast<double>(probs[i]); });
  if (token < 0)
    throw_failure(cat("sampling: none of ", probs.size(), " probabilities is above 0"));
  return token;
}

ResidualMass residual_mass(std::span<const float> target, std::span<const float> draft,
                           double scale) {
  check_equal_length("residual", target.size(), draft.size());
  return HWY_DYNAMIC_DISPATCH(Residual)(target.data(), draft.data(), target.size(), scale);
}

TokenId sample_residual(std::span<const float> target, std::span<const float> draft, double scale,
                        double u) {
  check_equal_length("residual", target.size(), draft.size());
  return inverse_cdf(
      target.size(), u,
      [&](std::size_t begin, std::size_t count) {
        return HWY_DYNAMIC_DISPATCH(Residual)(target.data() + begin, draft.data() + begin, count,
                                              scale)
            .residual;
      },
      [&](std::size_t i) {
        return std::max(0.0,
                        static_cast<double>(target[i]) - scale * static_cast<double>(draft[i]));
      });
}

void block_masses(std::span<const float> probs, std::size_t block, std::span<double> masses) {
  check_equal_length("block masses", (probs.size() + block - 1) / block, masses.size());
  HWY_DYNAMIC_DISPATCH(BlockMasses)(probs.data(), probs.size(), block, masses.data());
}

void block_maxima(std::span<const float> probs, std::span<const float> noise, std::size_t block,
                  std::span<double> maxima) {
  check_equal_length("block maxima", (probs.size() + block - 1) / block, maxima.size());
  if (!noise.empty()) check_equal_length("block maxima", probs.size(), noise.size());
  HWY_DYNAMIC_DISPATCH(BlockMaxima)
  (probs.data(), noise.empty() ? nullptr : noise.data(), probs.size(), block, maxima.data());
}

PowerMoments power_moments(std::span<const float> probs, std::span<const float> noise,
                           std::size_t block, std::span<const double> maxima, double power) {
  check_equal_length("power moments", (probs.size() + block - 1) / block, maxima.size());
  if (!noise.empty()) check_equal_length("power moments", probs.size(), noise.size());
  PowerMoments moments;
  for (const double largest : maxima) moments.largest = std::max(moments.largest, largest);
  if (!(moments.largest > 0.0)) return moments;
  const double least =
      moments.largest * std::pow(0x1p-20 / static_cast<double>(probs.size()), 1.0 / power);
  double sums[3] = {};
  for (std::size_t b = 0; b < maxima.size(); ++b) {
    if (maxima[b] < least) continue;
    const std::size_t begin = b * block;
    HWY_DYNAMIC_DISPATCH(SumPowers)
    (probs.data() + begin, noise.empty() ? nullptr : noise.data() + begin,
     std::min(block, probs.size() - begin), static_cast<float>(moments.largest),
     static_cast<float>(power), sums);
  }
  moments.sum = sums[0];
  moments.mean = sums[1] / sums[0];
  moments.variance = std::max(0.0, sums[2] / sums[0] - moments.mean * moments.mean);
  return moments;
}

TokenId argmax_product(std::span<const float> probs, std::span<const float> noise) {
  check_equal_length("coupled argmax", probs.size(), noise.size());
  return static_cast<TokenId>(
      HWY_DYNAMIC_DISPATCH(ArgmaxProduct)(probs.data(), noise.data(), probs.size()));
}

}  // namespace coppice
#endif  // HWY_ONCE
