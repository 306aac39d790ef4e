#include "kernels/block_fields.h"

#include <bit>
#include <cstring>

namespace coppice::block_fields {
namespace {

unsigned byte_at(const std::byte* at) { return std::to_integer<unsigned>(*at); }
std::int8_t number(unsigned value) { return static_cast<std::int8_t>(static_cast<int>(value)); }

std::uint32_t whole_word(const std::byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// The lowest `bits` bits of every byte.
constexpr std::uint32_t low_bits(int bits) { return 0x01010101u * ((1u << bits) - 1); }

/// 32 numbers of 4 bits: low nibbles first, then high ones.
void nibbles(const std::byte* at, std::uint32_t* words) {
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t both = whole_word(at + 4 * i);
    words[i] = both & low_bits(4);
    words[i + 4] = both >> 4 & low_bits(4);
  }
}

/// 32 numbers' fifth bits, one after another.
void add_fifth_bits(const std::byte* at, std::uint32_t* words) {
  const std::uint32_t bits = whole_word(at);
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t four = bits >> 4 * i & 15u;
    // Bit k to byte k: copies at distances of 7, of which one bit each is kept.
    words[i] |= (four * 0x00204081u & low_bits(1)) << 4;
  }
}

/// Reads q4_k and q5_k: runs of 64 numbers, first all low nibbles, then all high ones.
void read_runs(const std::byte* nibble, const std::byte* fifth, BitWords& words) {
  for (std::size_t run = 0; run < 4; ++run) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t both = whole_word(nibble + 32 * run + 4 * i);
      std::uint32_t low = both & low_bits(4), high = both >> 4 & low_bits(4);
      if (fifth != nullptr) {
        const std::uint32_t bits = whole_word(fifth + 4 * i) >> 2 * run;
        low |= (bits & low_bits(1)) << 4;
        high |= (bits >> 1 & low_bits(1)) << 4;
      }
      words[16 * run + i] = low;
      words[16 * run + 8 + i] = high;
    }
  }
}

void read_q2_k(const std::byte* q, BitWords& words) {
  for (std::size_t part = 0; part < 8; ++part) {
    for (std::size_t i = 0; i < 8; ++i) {
      words[8 * part + i] = whole_word(q + 32 * (part / 4) + 4 * i) >> 2 * (part % 4) & low_bits(2);
    }
  }
}

void read_q3_k(const std::byte* block, BitWords& words) {
  read_q2_k(block + 32, words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] |= (whole_word(block + 4 * (i % 8)) >> (i / 8) & low_bits(1)) << 2;
  }
}

void read_q6_k(const std::byte* block, BitWords& words) {
  for (std::size_t part = 0; part < 8; ++part) {
    const std::byte* const low = block + 64 * (part / 4) + 32 * (part & 1);
    const std::byte* const high = block + 128 + 32 * (part / 4);
    for (std::size_t i = 0; i < 8; ++i) {
      words[8 * part + i] = (whole_word(low + 4 * i) >> 4 * (part >> 1 & 1) & low_bits(4)) |
                            (whole_word(high + 4 * i) >> 2 * (part % 4) & low_bits(2)) << 4;
    }
  }
}

/// 8 scales and 8 minima of 6 bits in 12 bytes: the low bits of the last four stand in the first
/// eight bytes' place.
void read_packed_scales(const std::byte* at, Scales& scales) {
  for (std::size_t j = 0; j < 4; ++j) {
    const unsigned first = byte_at(at + j), second = byte_at(at + j + 4),
                   last = byte_at(at + j + 8);
    scales.sub_scales[j] = number(first & 63u);
    scales.sub_minima[j] = static_cast<std::uint8_t>(second & 63u);
    scales.sub_scales[j + 4] = number((last & 15u) | first >> 6 << 4);
    scales.sub_minima[j + 4] = static_cast<std::uint8_t>(last >> 4 | second >> 6 << 4);
  }
}

/// 16 scales of 6 bits less 32: eight bytes of nibbles, then four of pairs of high bits.
void read_q3_k_scales(const std::byte* at, Scales& scales) {
  for (std::size_t j = 0; j < 16; ++j) {
    const unsigned low = byte_at(at + j % 8) >> (j < 8 ? 0 : 4) & 15u;
    const unsigned high = byte_at(at + 8 + j % 4) >> 2 * (j / 4) & 3u;
    scales.sub_scales[j] = static_cast<std::int8_t>(static_cast<int>(low | high << 4) - 32);
  }
}

}  // namespace

std::uint16_t word_at(const std::byte* at) {
  std::uint16_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

float half_at(const std::byte* at) {
  const std::uint32_t word = word_at(at);
  const std::uint32_t sign = (word & 0x8000u) << 16;
  const std::uint32_t exponent = word >> 10 & 31u, fraction = word & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

float float_at(const std::byte* at) { return std::bit_cast<float>(whole_word(at)); }

float value_of_e4m3(std::byte byte) {
  const unsigned bits = std::to_integer<unsigned>(byte), magnitude = bits & 0x7fu;
  const std::uint32_t sign = (bits & 0x80u) << 24;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  // In place, the exponent's bias is 120 more; small numbers are subnormal there, too.
  return std::bit_cast<float>(sign | magnitude << 20) * 0x1p120f;
}

const std::byte* d_of(WeightFormat format, const std::byte* block) {
  switch (format) {
    case WeightFormat::q2_k:
      return block + 80;
    case WeightFormat::q3_k:
      return block + 108;
    case WeightFormat::q6_k:
      return block + 208;
    default:
      return block;
  }
}

bool has_stored_minimum(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_1:
    case WeightFormat::q5_1:
    case WeightFormat::q2_k:
    case WeightFormat::q4_k:
    case WeightFormat::q5_k:
      return true;
    default:
      return false;
  }
}

void read_bits(WeightFormat format, const std::byte* block, BitWords& words) {
  switch (format) {
    case WeightFormat::q8_0:
      for (std::size_t i = 0; i < 8; ++i) words[i] = whole_word(block + 2 + 4 * i) ^ 0x80808080u;
      return;
    case WeightFormat::fp8:
      std::memcpy(words.data(), block + 4, 64);
      return;
    case WeightFormat::q4_0:
    case WeightFormat::iq4_nl:
      return nibbles(block + 2, words.data());
    case WeightFormat::q4_1:
      return nibbles(block + 4, words.data());
    case WeightFormat::int4:
      return nibbles(block + 3, words.data());
    case WeightFormat::q5_0:
      nibbles(block + 6, words.data());
      return add_fifth_bits(block + 2, words.data());
    case WeightFormat::q5_1:
      nibbles(block + 8, words.data());
      return add_fifth_bits(block + 4, words.data());
    case WeightFormat::q2_k:
      return read_q2_k(block + 16, words);
    case WeightFormat::q3_k:
      return read_q3_k(block, words);
    case WeightFormat::q4_k:
      return read_runs(block + 16, nullptr, words);
    case WeightFormat::q5_k:
      return read_runs(block + 48, block + 16, words);
    case WeightFormat::q6_k:
      return read_q6_k(block, words);
    case WeightFormat::iq4_xs:
      for (std::size_t run = 0; run < 8; ++run) {
        nibbles(block + 8 + 16 * run, words.data() + 8 * run);
      }
      return;
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
}

void read_numbers(WeightFormat format, const std::byte* block, Numbers& numbers) {
  BitWords words;
  read_bits(format, block, words);
  const bool looked_up = format == WeightFormat::iq4_nl || format == WeightFormat::iq4_xs;
  const int zero = zero_of(format);
  const std::int64_t count = block_shape(format).numbers;
  std::array<std::uint8_t, most_numbers> bits;
  std::memcpy(bits.data(), words.data(), static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    numbers[i] = looked_up ? iq4_numbers[bits[i]] : static_cast<std::int8_t>(bits[i] - zero);
  }
}

void read_scales(WeightFormat format, const std::byte* block, Scales& scales) {
  const std::byte* const d = d_of(format, block);
  scales = {};
  if (format == WeightFormat::fp8) {
    scales.group = 64;
    scales.d = float_at(d);
    return;
  }
  scales.d = half_at(d);
  switch (format) {
    case WeightFormat::q4_1:
    case WeightFormat::q5_1:
      scales.minimum = half_at(d + 2);
      scales.has_minima = true;
      return;
    case WeightFormat::int4:
      scales.minimum = -(scales.d * static_cast<float>(byte_at(d + 2)));
      scales.has_minima = true;
      return;
    case WeightFormat::q4_k:
    case WeightFormat::q5_k:
      scales.minimum = -half_at(d + 2);
      scales.has_minima = scales.has_sub_scales = true;
      return read_packed_scales(block + 4, scales);
    case WeightFormat::q2_k:
      scales.minimum = -half_at(d + 2);
      scales.group = 16;
      scales.has_minima = scales.has_sub_scales = true;
      for (std::size_t j = 0; j < 16; ++j) {
        scales.sub_scales[j] = number(byte_at(block + j) & 15u);
        scales.sub_minima[j] = static_cast<std::uint8_t>(byte_at(block + j) >> 4);
      }
      return;
    case WeightFormat::q3_k:
      scales.group = 16;
      scales.has_sub_scales = true;
      return read_q3_k_scales(block + 96, scales);
    case WeightFormat::q6_k:
      scales.group = 16;
      scales.has_sub_scales = true;
      std::memcpy(scales.sub_scales.data(), block + 192, 16);
      return;
    case WeightFormat::iq4_xs:
      scales.has_sub_scales = true;
      for (std::size_t j = 0; j < 8; ++j) {
        const unsigned low = byte_at(block + 4 + j / 2) >> 4 * (j % 2) & 15u;
        const unsigned high = unsigned{word_at(block + 2)} >> 2 * j & 3u;
        scales.sub_scales[j] = static_cast<std::int8_t>(static_cast<int>(low | high << 4) - 32);
      }
      return;
    default:
      return;
  }
}

}  // namespace coppice::block_fields
