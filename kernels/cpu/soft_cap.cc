#include "kernels/cpu/soft_cap.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/soft_cap.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

void cap_values(float* values, std::int64_t n, float cap) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(soft_capped(d, hn::LoadU(d, values + i), cap), d, values + i);
  }
  for (; i < n; ++i) hn::StoreU(soft_capped(d1, hn::LoadU(d1, values + i), cap), d1, values + i);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(cap_values);

void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap, Workers& workers) {
  workers.run_rows(rows * width, 1, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(cap_values)(logits + begin, end - begin, cap);
  });
}

}  // namespace coppice::cpu
#endif
