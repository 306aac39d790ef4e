// What products of packed weights end with; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_STORE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_STORE_SUMS_INL_H_
#undef COPPICE_KERNELS_CPU_STORE_SUMS_INL_H_
#else
#define COPPICE_KERNELS_CPU_STORE_SUMS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/weight_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Writes a row's sums of up to 16 outputs from `column` on, with bias and what is there if the
/// product asks for them; nothing beyond the last output.
HWY_INLINE void store_sums(const LinearProduct& p, std::int64_t row, std::int64_t column,
                           hn::Vec<hn::CappedTag<float, 16>> sum) {
  const hn::CappedTag<float, 16> d;
  constexpr int lanes = hn::MaxLanes(d);
  const std::int64_t count = p.weights.out - column;
  if (count <= 0) return;
  float* const y = p.y + row * p.stride + column;
  if (count >= lanes) {
    if (p.bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, p.bias + column));
    if (p.accumulate) sum = hn::Add(sum, hn::LoadU(d, y));
    hn::StoreU(sum, d, y);
    return;
  }
  HWY_ALIGN float sums[lanes];
  hn::Store(sum, d, sums);
  for (std::int64_t j = 0; j < count; ++j) {
    float total = sums[j];
    if (p.bias != nullptr) total += p.bias[column + j];
    y[j] = p.accumulate ? y[j] + total : total;
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
