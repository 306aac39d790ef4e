#include "kernels/cpu/embedding.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

template <DType kType>
void widen(const void* row, std::int64_t n, float scale, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* from = static_cast<const Stored<kType>*>(row);
  std::int64_t i = 0;
  const auto scales = hn::Set(d, scale);
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(load_as<kType>(d, from + i), scales), d, to + i);
  }
  for (; i < n; ++i) to[i] = value_as<kType>(from + i) * scale;
}

void widen_row(const void* from, DType dtype, std::int64_t n, float scale, float* to) {
  switch (dtype) {
    case DType::f32:
      return widen<DType::f32>(from, n, scale, to);
    case DType::f16:
      return widen<DType::f16>(from, n, scale, to);
    case DType::bf16:
      return widen<DType::bf16>(from, n, scale, to);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(widen_row);

void embed(const void* table, WeightFormat format, std::int64_t hidden,
           std::span<const TokenId> tokens, float scale, float* out, Workers& workers) {
  const auto row_bytes =
      static_cast<std::int64_t>(bytes_of(format, static_cast<std::uint64_t>(hidden)));
  const std::optional<DType> plain = dtype_of(format);
  workers.run_rows(std::ssize(tokens), hidden, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    const auto* bytes = static_cast<const char*>(table);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t token = tokens[static_cast<std::size_t>(r)];
      const char* const row = bytes + token * row_bytes;
      float* const to = out + r * hidden;
      if (plain) {
        HWY_DYNAMIC_DISPATCH(widen_row)(row, *plain, hidden, scale, to);
        continue;
      }
      dequantise(format, std::as_bytes(std::span(row, static_cast<std::size_t>(row_bytes))), to);
      for (std::int64_t i = 0; i < hidden; ++i) to[i] *= scale;
    }
  });
}

}  // namespace coppice::cpu
#endif
