#include "models/widen.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace coppice {
namespace {

float widened_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  // Exponent and fraction in place, then the bias corrected by an exact product, which also
  // makes subnormal halves normal.
  return std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1.0p112f) | sign);
}

}  // namespace

void widen(std::span<const std::byte> values, DType dtype, float* out) {
  const std::size_t count = values.size() / size_of(dtype);
  if (dtype == DType::f32) {
    std::memcpy(out, values.data(), values.size());
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, values.data() + 2 * i, 2);
    out[i] = dtype == DType::f16 ? widened_f16(bits)
                                 : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
}

}  // namespace coppice
