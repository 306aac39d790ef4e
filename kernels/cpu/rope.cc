#include "kernels/cpu/rope.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

template <DType kType>
void rotate_as(const float* from, const float* cosine, const float* sine, std::int64_t half,
               Stored<kType>* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + half + i);
    store_as<kType>(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), to + i);
    store_as<kType>(d, hn::MulAdd(a, s, hn::Mul(b, c)), to + half + i);
  }
  // The same operations lane by lane: whether a scalar expression is fused is the compiler's choice.
  const hn::CappedTag<float, 1> one;
  for (; i < half; ++i) {
    const auto c = hn::Set(one, cosine[i]), s = hn::Set(one, sine[i]);
    const auto a = hn::Set(one, from[i]), b = hn::Set(one, from[half + i]);
    store_value_as<kType>(hn::GetLane(hn::NegMulAdd(b, s, hn::Mul(a, c))), to + i);
    store_value_as<kType>(hn::GetLane(hn::MulAdd(a, s, hn::Mul(b, c))), to + half + i);
  }
}

template <DType kType>
void copy_as(const float* from, std::int64_t n, Stored<kType>* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_as<kType>(d, hn::LoadU(d, from + i), to + i);
  for (; i < n; ++i) store_value_as<kType>(from[i], to + i);
}

template <DType kType>
void write_as(const float* from, const float* cosine, const float* sine, std::int64_t half,
              std::int64_t n, Stored<kType>* to) {
  rotate_as<kType>(from, cosine, sine, half, to);
  copy_as<kType>(from + 2 * half, n - 2 * half, to + 2 * half);
}

/// Rotates 2 half elements of a head of n and copies the others. `to`, of `type`, may be `from`.
void rotate_head(const float* from, const float* cosine, const float* sine, std::int64_t half,
                 std::int64_t n, DType type, void* to) {
  switch (type) {
    case DType::f32:
      return write_as<DType::f32>(from, cosine, sine, half, n, static_cast<float*>(to));
    case DType::f16:
      return write_as<DType::f16>(from, cosine, sine, half, n, static_cast<std::uint16_t*>(to));
    case DType::bf16:
      return write_as<DType::bf16>(from, cosine, sine, half, n, static_cast<std::uint16_t*>(to));
  }
}

void norm_heads(float* x, const float* weight, float epsilon, std::int32_t heads, std::int64_t n) {
  for (std::int32_t h = 0; h < heads; ++h, x += n) norm_row<false>(x, weight, epsilon, n, x);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(rotate_head);
HWY_EXPORT(norm_heads);

void rope_write_kv(float* qkv, std::span<const std::int32_t> positions,
                   std::span<const KvSlot> slots, const QkvOutput& to, DType kv_dtype,
                   Workers& workers) {
  const KvLayout& layout = to.layout;
  const auto dim = static_cast<std::int64_t>(layout.head_dim);
  const std::int64_t half = to.rope->half_dim;
  const std::int64_t stride = (to.heads + 2 * std::int64_t{layout.kv_heads}) * dim;
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_head);
  const auto norm = HWY_DYNAMIC_DISPATCH(norm_heads);
  const auto in = [&](void* pool, std::int64_t at) -> void* {
    return static_cast<std::byte*>(pool) + at * static_cast<std::int64_t>(size_of(kv_dtype));
  };
  workers.run_rows(
      std::ssize(positions), stride, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const auto row = static_cast<std::size_t>(r);
          const float* cosine = to.rope->cosine.as<float>() + positions[row] * half;
          const float* sine = to.rope->sine.as<float>() + positions[row] * half;
          float* head = qkv + r * stride;
          const HeadNorms& norms = to.norms;
          if (norms.query != nullptr) norm(head, norms.query, norms.epsilon, to.heads, dim);
          for (std::int32_t h = 0; h < to.heads; ++h, head += dim) {
            rotate(head, cosine, sine, half, dim, DType::f32, head);
          }
          if (norms.key != nullptr) norm(head, norms.key, norms.epsilon, layout.kv_heads, dim);
          const std::int64_t page = slots[row] / layout.page_size;
          const std::int64_t offset = slots[row] % layout.page_size;
          const std::int64_t first =
              (std::int64_t{to.layer} * layout.pages + page) * layout.kv_heads;
          for (std::int32_t h = 0; h < layout.kv_heads; ++h, head += dim) {
            const std::int64_t at = ((first + h) * layout.page_size + offset) * dim;
            rotate(head, cosine, sine, half, dim, kv_dtype, in(to.keys, at));
            // A rotation of nothing copies.
            rotate(head + layout.kv_heads * dim, cosine, sine, 0, dim, kv_dtype, in(to.values, at));
          }
        }
      });
}

}  // namespace coppice::cpu
#endif
