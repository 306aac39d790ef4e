#include "kernels/cpu/packed_format.h"

#include <array>
#include <cstring>

#include "kernels/block_fields.h"

namespace coppice::cpu {
namespace {

using namespace block_fields;

std::uint32_t word(const std::byte* planes, std::int64_t plane, std::int64_t output) {
  std::uint32_t bits;
  std::memcpy(&bits, planes + plane * quad_bytes + 4 * output, sizeof bits);
  return bits;
}

/// Where a quad's bits lie among planes of `bits` bits a number.
struct Place {
  std::int64_t plane;
  int shift;
  std::uint32_t mask;  ///< of the bits, at the word's low end
};
Place place_of(std::int64_t quad, std::int32_t bits) {
  const std::int64_t in_plane = 8 / bits;
  return {quad / in_plane, static_cast<int>(quad % in_plane * bits),
          0x01010101u * ((1u << bits) - 1)};
}

/// One group of an output into planes of kBits bits of a number, from bit `from` of it on.
template <int kBits>
void put_planes(const std::uint32_t* quads, int from, std::int64_t output, std::byte* planes) {
  constexpr int kOfPlane = 8 / kBits;
  constexpr std::uint32_t kMask = 0x01010101u * ((1u << kBits) - 1);
  for (int plane = 0; plane < kBits; ++plane) {
    std::uint32_t bits = 0;
    for (int k = 0; k < kOfPlane; ++k) {
      bits |= (quads[plane * kOfPlane + k] >> from & kMask) << kBits * k;
    }
    std::memcpy(planes + plane * quad_bytes + 4 * output, &bits, sizeof bits);
  }
}

void pack_numbers(const PackedFormat& packed, const std::uint32_t* quads, std::int64_t output,
                  std::byte* low) {
  switch (packed.low_bits) {
    case 8:
      put_planes<8>(quads, 0, output, low);
      break;
    case 4:
      put_planes<4>(quads, 0, output, low);
      break;
    default:
      put_planes<2>(quads, 0, output, low);
      break;
  }
  std::byte* const high = low + packed.low_bytes();
  if (packed.high_bits == 1) put_planes<1>(quads, packed.low_bits, output, high);
  if (packed.high_bits == 2) put_planes<2>(quads, packed.low_bits, output, high);
}

void pack_scales(const PackedFormat& packed, const Scales& scales, std::int64_t group,
                 std::int64_t output, std::byte* to) {
  const std::int64_t count = packed.scales_of_group();
  for (std::int64_t s = 0; s < count; ++s) {
    const auto index = static_cast<std::size_t>(group * count + s);
    const auto scale = static_cast<std::uint8_t>(scales.sub_scales[index]);
    const std::uint8_t minimum = scales.sub_minima[index];
    std::byte* const at = to + s * strip_width + output;
    if (packed.sub_scales == SubScales::nibbles) {
      *at = static_cast<std::byte>(scale | minimum << 4);
      continue;
    }
    *at = static_cast<std::byte>(scale);
    if (packed.minima) at[count * strip_width] = static_cast<std::byte>(minimum);
  }
}

void unpack_e4m3_row(const PackedFormat& packed, const std::byte* strip, std::int64_t in,
                     std::int64_t output, float* out) {
  for (std::int64_t i = 0; i < in; ++i) {
    const std::byte* const super = strip + i / packed.super_inputs() * packed.super_bytes();
    const std::int64_t of_super = i % packed.super_inputs();
    const std::byte* const quad = super + packed.header_bytes() + of_super / 4 * quad_bytes;
    *out++ = float_at(super + 4 * output) * value_of_e4m3(quad[4 * output + of_super % 4]);
  }
}

}  // namespace

void pack_strip(WeightFormat format, const std::byte* const (&rows)[strip_width], std::int64_t in,
                std::byte* strip) {
  const PackedFormat packed = packed_format(format);
  const BlockShape shape = block_shape(format);
  std::memset(strip, 0, static_cast<std::size_t>(strip_bytes(format, in)));
  for (std::int64_t output = 0; output < strip_width; ++output) {
    const std::byte* block = rows[output];
    if (block == nullptr) continue;
    for (std::byte* to = strip; to < strip + strip_bytes(format, in); block += shape.bytes) {
      BitWords words;
      read_bits(format, block, words);
      Scales scales;
      read_scales(format, block, scales);
      // d and m stand at the end of some blocks.
      const std::byte* const d = d_of(format, block);
      if (packed.e4m3) {
        std::memcpy(to + 4 * output, d, 4);
      } else {
        std::memcpy(to + 2 * output, d, 2);
      }
      if (packed.zeros) {
        to[2 * strip_width + output] = d[2];
      } else if (packed.minima) {
        std::memcpy(to + 2 * (strip_width + output), d + 2, 2);
      }
      to += packed.header_bytes();
      for (std::int64_t group = 0; group < packed.groups(); ++group) {
        if (packed.sub_scales != SubScales::none) pack_scales(packed, scales, group, output, to);
        pack_numbers(packed, words.data() + group * quads_of_group, output,
                     to + packed.scale_bytes());
        to += packed.group_bytes();
      }
    }
  }
}

UnpackedGroup unpack_group(WeightFormat format, const std::byte* strip, std::int64_t group,
                           std::int64_t output) {
  const PackedFormat packed = packed_format(format);
  const std::byte* const super = strip + group / packed.groups() * packed.super_bytes();
  const std::byte* const at =
      super + packed.header_bytes() + group % packed.groups() * packed.group_bytes();
  const std::byte* const low = at + packed.scale_bytes();
  UnpackedGroup unpacked;
  for (std::int64_t i = 0; i < group_inputs; ++i) {
    const Place place = place_of(i / 4, packed.low_bits);
    std::uint32_t kept = word(low, place.plane, output) >> place.shift & place.mask;
    if (packed.high_bits > 0) {
      const Place rest = place_of(i / 4, packed.high_bits);
      kept |= (word(low + packed.low_bytes(), rest.plane, output) >> rest.shift & rest.mask)
              << packed.low_bits;
    }
    kept = kept >> i % 4 * 8 & 255u;
    unpacked.numbers[i] =
        packed.looked_up ? iq4_numbers[kept] : static_cast<std::int32_t>(kept) - packed.offset;
  }
  const float d = half_at(super + 2 * output);
  float m = 0.0f;
  if (packed.zeros) {
    m = -(d * static_cast<float>(std::to_integer<int>(super[2 * strip_width + output])));
  } else if (packed.minima) {
    m = half_at(super + 2 * (strip_width + output));
  }
  for (std::int64_t s = 0; s < packed.scales_of_group(); ++s) {
    const std::byte* const sub = at + s * strip_width + output;
    float& scale = unpacked.scales[s];
    float& minimum = unpacked.minima[s];
    switch (packed.sub_scales) {
      case SubScales::none:
        scale = d;
        minimum = m;
        break;
      case SubScales::whole_bytes:
        scale = d * static_cast<float>(static_cast<std::int8_t>(*sub));
        minimum = packed.minima ? -m * static_cast<float>(std::to_integer<int>(
                                           sub[packed.scales_of_group() * strip_width]))
                                : 0.0f;
        break;
      case SubScales::nibbles:
        scale = d * static_cast<float>(std::to_integer<int>(*sub) & 15);
        minimum = -m * static_cast<float>(std::to_integer<int>(*sub) >> 4);
        break;
    }
  }
  return unpacked;
}

void unpack_row(WeightFormat format, const std::byte* strip, std::int64_t in, std::int64_t output,
                float* out) {
  const PackedFormat packed = packed_format(format);
  if (packed.e4m3) return unpack_e4m3_row(packed, strip, in, output, out);
  for (std::int64_t group = 0; group < in / group_inputs; ++group) {
    const UnpackedGroup unpacked = unpack_group(format, strip, group, output);
    for (std::int64_t i = 0; i < group_inputs; ++i) {
      const float product =
          unpacked.scales[i / packed.shared] * static_cast<float>(unpacked.numbers[i]);
      *out++ = packed.minima ? product + unpacked.minima[i / packed.shared] : product;
    }
  }
}

}  // namespace coppice::cpu
