#include "kernels/narrowed.h"

#include <cstring>
#include <utility>
#include <vector>

namespace coppice {

HostBytes narrowed_to_bf16(HostBytes stored, WeightFormat format) {
  return HostBytes::Read(
      [stored = std::move(stored), format](std::size_t offset, std::span<std::byte> to) {
        const std::uint64_t first = offset / sizeof(std::uint16_t);
        const std::uint64_t count = to.size() / sizeof(std::uint16_t);
        std::vector<std::byte> blocks(bytes_of(format, count));
        stored.read(bytes_of(format, first), blocks);
        std::vector<float> values(count);
        dequantise(format, blocks, values.data());
        auto* bits = to.data();
        for (const float value : values) {
          const std::uint16_t rounded = rounded_to_bf16(value);
          std::memcpy(bits, &rounded, sizeof rounded);
          bits += sizeof rounded;
        }
      });
}

}  // namespace coppice
