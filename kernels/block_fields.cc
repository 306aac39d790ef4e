#include "kernels/block_fields.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace coppice::block_fields {
namespace {

unsigned byte_at(const std::byte* at) { return std::to_integer<unsigned>(*at); }
std::int8_t number(unsigned value) { return static_cast<std::int8_t>(static_cast<int>(value)); }

/// 32 numbers of 4 bits: low nibbles first, then high ones.
template <class Make>
void nibbles(const std::byte* at, std::int8_t* out, Make make) {
  for (int i = 0; i < 16; ++i) {
    out[i] = make(byte_at(at + i) & 15u, i);
    out[i + 16] = make(byte_at(at + i) >> 4, i + 16);
  }
}

void read_small(const std::byte* at, bool fifth_bits, int offset, std::int8_t* out) {
  std::uint32_t high = 0;
  if (fifth_bits) {
    std::memcpy(&high, at, sizeof high);
    at += sizeof high;
  }
  nibbles(at, out, [&](unsigned q, int i) {
    return static_cast<std::int8_t>(static_cast<int>(q | (high >> i & 1u) << 4) - offset);
  });
}

/// Of q4_k and q5_k: runs of 64 numbers, first all low nibbles, then all high ones.
void read_runs(const std::byte* nibble, const std::byte* fifth, std::int8_t* out) {
  for (int run = 0; run < 4; ++run) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 32; ++i) {
        unsigned q = byte_at(nibble + 32 * run + i) >> 4 * half & 15u;
        if (fifth != nullptr) q |= (byte_at(fifth + i) >> (2 * run + half) & 1u) << 4;
        out[64 * run + 32 * half + i] = number(q);
      }
    }
  }
}

void read_q2_k(const std::byte* q, std::int8_t* out) {
  for (int half = 0; half < 2; ++half) {
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 32; ++i) {
        out[128 * half + 32 * part + i] = number(byte_at(q + 32 * half + i) >> 2 * part & 3u);
      }
    }
  }
}

void read_q3_k(const std::byte* block, std::int8_t* out) {
  read_q2_k(block + 32, out);
  for (int i = 0; i < most_numbers; ++i) {
    const bool third = (byte_at(block + i % 32) >> (i / 32) & 1u) != 0;
    if (!third) out[i] = static_cast<std::int8_t>(out[i] - 4);
  }
}

void read_q6_k(const std::byte* block, std::int8_t* out) {
  for (int half = 0; half < 2; ++half) {
    const std::byte* const low = block + 64 * half;
    const std::byte* const high = block + 128 + 32 * half;
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 32; ++i) {
        const unsigned nibble = byte_at(low + i + 32 * (part & 1)) >> 4 * (part >> 1) & 15u;
        const unsigned q = nibble | (byte_at(high + i) >> 2 * part & 3u) << 4;
        out[128 * half + 32 * part + i] = static_cast<std::int8_t>(static_cast<int>(q) - 32);
      }
    }
  }
}

/// 8 scales and 8 minima of 6 bits in 12 bytes: the low bits of the last four stand in the first
/// eight bytes' place.
void read_packed_scales(const std::byte* at, Scales& scales) {
  for (std::size_t j = 0; j < 4; ++j) {
    const unsigned first = byte_at(at + j), second = byte_at(at + j + 4), last = byte_at(at + j + 8);
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

void read_numbers(WeightFormat format, const std::byte* block, Numbers& numbers) {
  std::int8_t* const out = numbers.data();
  switch (format) {
    case WeightFormat::q8_0:
      std::memcpy(out, block + 2, 32);
      return;
    case WeightFormat::q4_0:
      return read_small(block + 2, false, 8, out);
    case WeightFormat::q4_1:
      return read_small(block + 4, false, 0, out);
    case WeightFormat::q5_0:
      return read_small(block + 2, true, 16, out);
    case WeightFormat::q5_1:
      return read_small(block + 4, true, 0, out);
    case WeightFormat::q2_k:
      return read_q2_k(block + 16, out);
    case WeightFormat::q3_k:
      return read_q3_k(block, out);
    case WeightFormat::q4_k:
      return read_runs(block + 16, nullptr, out);
    case WeightFormat::q5_k:
      return read_runs(block + 48, block + 16, out);
    case WeightFormat::q6_k:
      return read_q6_k(block, out);
    case WeightFormat::iq4_nl:
      return nibbles(block + 2, out, [](unsigned q, int) { return iq4_numbers[q]; });
    case WeightFormat::iq4_xs:
      for (int run = 0; run < 8; ++run) {
        nibbles(block + 8 + 16 * run, out + 32 * run, [](unsigned q, int) { return iq4_numbers[q]; });
      }
      return;
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
}

void read_scales(WeightFormat format, const std::byte* block, Scales& scales) {
  const std::byte* const d = d_of(format, block);
  scales = {};
  scales.d = half_at(d);
  switch (format) {
    case WeightFormat::q4_1:
    case WeightFormat::q5_1:
      scales.minimum = half_at(d + 2);
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
