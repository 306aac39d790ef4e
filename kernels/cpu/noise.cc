#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/noise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After the two above, which repeat this file for every instruction set.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/random.h"
#include "kernels/noise.h"

HWY_BEFORE_NAMESPACE();
namespace coppice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out = -1 / log(uniforms). n is a multiple of 8.
void InverseExponential(const double* uniforms, std::size_t n, float* out) {
  const hn::CappedTag<double, 8> f64;
  const hn::Rebind<float, decltype(f64)> f32;
  const auto minus_one = hn::Set(f64, -1.0);
  for (std::size_t i = 0; i < n; i += hn::Lanes(f64)) {
    const auto e = hn::Log(f64, hn::LoadU(f64, uniforms + i));
    hn::StoreU(hn::DemoteTo(f32, hn::Div(minus_one, e)), f32, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice {
namespace {
HWY_EXPORT(InverseExponential);
}  // namespace

void inverse_exponential_noise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                               std::span<float> out) {
  constexpr std::size_t block = 256;
  std::array<double, block> uniforms;
  std::array<float, block> noise;
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    const std::size_t count = std::min(block, out.size() - begin);
    const std::size_t padded = (count + 7) / 8 * 8;
    coupled_uniforms(seed, sequence, position, begin, std::span(uniforms).first(padded));
    HWY_DYNAMIC_DISPATCH(InverseExponential)(uniforms.data(), padded, noise.data());
    std::copy_n(noise.begin(), count, out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

NoiseCache::NoiseCache(std::int64_t vocab_size, std::int32_t rows)
    : vocab_size_(vocab_size), rows_(static_cast<std::size_t>(std::max(rows, 1))) {}

std::span<const float> NoiseCache::row(std::uint64_t seed, std::uint64_t sequence,
                                       std::uint64_t position) {
  Row& row = rows_[position % rows_.size()];
  const bool known = !row.values.empty() && row.seed == seed && row.sequence == sequence &&
                     row.position == position;
  if (!known) {
    row.values.resize(static_cast<std::size_t>(vocab_size_));
    row.seed = seed;
    row.sequence = sequence;
    row.position = position;
    inverse_exponential_noise(seed, sequence, position, row.values);
  }
  return row.values;
}

}  // namespace coppice
#endif  // HWY_ONCE
