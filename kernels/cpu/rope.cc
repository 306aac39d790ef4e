#include "kernels/rope.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// to may be from.
void rotate_head(const float* from, const float* cosine, const float* sine, std::int64_t half,
                 float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + half + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, to + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, to + half + i);
  }
  for (; i < half; ++i) {
    const float a = from[i], b = from[half + i];
    to[i] = a * cosine[i] - b * sine[i];
    to[half + i] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(rotate_head);

void rope_write_kv(float* qkv, std::int32_t heads, const RopeTable& rope,
                   std::span<const std::int32_t> positions, std::span<const KvSlot> slots,
                   const KvLayout& layout, float* keys, float* values, std::int32_t layer,
                   Workers& workers) {
  const auto dim = static_cast<std::int64_t>(layout.head_dim);
  const std::int64_t half = dim / 2;
  const std::int64_t stride = (heads + 2 * std::int64_t{layout.kv_heads}) * dim;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_head);
  workers.run_rows(
      std::ssize(positions), stride, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const auto row = static_cast<std::size_t>(r);
          const float* cosine = rope.cosine.as<float>() + positions[row] * half;
          const float* sine = rope.sine.as<float>() + positions[row] * half;
          float* head = qkv + r * stride;
          for (std::int32_t h = 0; h < heads; ++h, head += dim)
            rotate(head, cosine, sine, half, head);
          const std::int64_t page = slots[row] / layout.page_size;
          const std::int64_t offset = slots[row] % layout.page_size;
          const std::int64_t first = (std::int64_t{layer} * layout.pages + page) * layout.kv_heads;
          for (std::int32_t h = 0; h < layout.kv_heads; ++h, head += dim) {
            const std::int64_t at = ((first + h) * layout.page_size + offset) * dim;
            rotate(head, cosine, sine, half, keys + at);
            std::memcpy(values + at, head + layout.kv_heads * dim,
                        static_cast<std::size_t>(dim) * sizeof(float));
          }
        }
      });
}

}  // namespace coppice::cpu
#endif
