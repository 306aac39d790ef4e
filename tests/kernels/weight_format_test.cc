// Blocks of quantised formats: against the gguf library's own numbers, and as the CPU packs them.
#include "kernels/weight_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/block_fields.h"
#include "kernels/cpu/packed_format.h"
#include "kernels/quantise.h"
#include "reference/quantised.h"

namespace coppice {
namespace {

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(WeightFormats, GiveTheNumbersOfTheGgufLibrary) {
  std::ifstream file(std::string(COPPICE_SOURCE_DIR) + "/tests/golden/weight_formats.json");
  const auto golden = nlohmann::json::parse(file);
  for (const WeightFormat format : all_weight_formats) {
    if (format == WeightFormat::f32 || is_own(format)) continue;  // none of GGUF
    SCOPED_TRACE(name_of(format));
    const auto& entry = golden.at(std::string(name_of(format)));
    const std::vector<std::byte> blocks = bytes_of_hex(entry.at("blocks").get<std::string>());
    const auto bits = entry.at("numbers").get<std::vector<std::uint32_t>>();
    ASSERT_EQ(bytes_of(format, bits.size()), blocks.size());
    std::vector<float> numbers(bits.size());
    dequantise(format, blocks, numbers.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(numbers[i]), bits[i]) << i;
    }
  }
}

TEST(WeightFormats, OfOwnHaveZeros) {
  std::vector<std::byte> block(19, std::byte{0x31});  // q is 1, then 3
  const std::uint16_t half = 0x3800;                  // 0.5
  std::memcpy(block.data(), &half, 2);
  block[2] = std::byte{9};
  std::vector<float> numbers(32);
  dequantise(WeightFormat::int4, block, numbers.data());
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(numbers[i], 0.5f * (i < 16 ? 1 - 9 : 3 - 9));
}

TEST(WeightFormats, OfOwnHoldE4m3) {
  std::vector<std::byte> block(68);
  for (unsigned byte = 0; byte < 256; ++byte) {
    // 2^(e - 7) (1 + f / 8), without a leading one for e = 0.
    const unsigned e = byte >> 3 & 15, f = byte & 7;
    const double magnitude = e == 0 ? std::ldexp(f / 8.0, -6) : std::ldexp(1 + f / 8.0, int(e) - 7);
    const auto value = static_cast<float>(byte >= 128 ? -magnitude : magnitude);
    const bool nan = (byte & 127) == 127;
    for (const float scale : {1.0f, -0.3f, 0x1p-140f, 0x1.8p119f, 0x1p125f}) {
      std::memcpy(block.data(), &scale, 4);
      block[4 + byte % 64] = static_cast<std::byte>(byte);
      std::vector<float> numbers(64);
      dequantise(WeightFormat::fp8, block, numbers.data());
      const float got = numbers[byte % 64], expected = scale * value;
      if (nan) {
        EXPECT_TRUE(std::isnan(got)) << byte;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected))
            << byte << " of scale " << scale;
      }
      EXPECT_EQ(has_non_finite_scale(WeightFormat::fp8, block), nan || !std::isfinite(expected));
    }
    block[4 + byte % 64] = std::byte{0};
  }
  for (const float scale : {INFINITY, NAN}) {
    std::memcpy(block.data(), &scale, 4);
    EXPECT_TRUE(has_non_finite_scale(WeightFormat::fp8, block));
  }
}

std::vector<float> requantised(WeightFormat format, const std::vector<float>& numbers) {
  std::vector<std::byte> blocks(bytes_of(format, numbers.size()));
  quantise(format, numbers, blocks.data());
  std::vector<float> rounded(numbers.size());
  dequantise(format, blocks, rounded.data());
  return rounded;
}

// Of every kind of group: wide and tiny ranges, one sign, mostly zeros, all equal.
std::vector<float> numbers_of_all_kinds() {
  std::mt19937 random(11);
  std::vector<float> numbers(256 * 133);
  const auto side = [&] {
    return static_cast<float>(static_cast<std::int32_t>(random() >> 8) - (1 << 23));
  };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float first = side(), sides = first + side();
    const std::size_t group = i / 32;
    float number = std::ldexp(sides, static_cast<int>(group % 80) - 60);
    if (group % 7 == 1) number = std::abs(number);
    if (group % 7 == 2) number = -std::abs(number);
    if (group % 11 == 3 && i % 3 != 0) number = 0.0f;
    if (group % 13 == 4) number = group % 2 == 0 ? 0.0f : -0.375f;
    numbers[i] = number;
  }
  return numbers;
}

// The bits are those of plain loops, one group after the other (FNV-1a of what these made). A
// model's file must not depend on the machine that wrote it.
TEST(Quantise, MakesTheSameBlocksOnEveryProcessor) {
  const std::vector<float> numbers = numbers_of_all_kinds();
  const std::pair<WeightFormat, std::uint64_t> made[] = {
      {WeightFormat::q8_0, 0x2aaac2d0e7837ecbu}, {WeightFormat::q4_0, 0x1cdbcda3e1be5f1cu},
      {WeightFormat::q5_0, 0x080ea9adc1302ad2u}, {WeightFormat::q4_k, 0x879f6a0425150de0u},
      {WeightFormat::q6_k, 0x3315dd22ccc5c478u}, {WeightFormat::int4, 0x54496e16f54d97cdu},
      {WeightFormat::fp8, 0x36b8619f5da0a73eu}};
  for (const auto& [format, expected] : made) {
    SCOPED_TRACE(name_of(format));
    std::vector<std::byte> blocks(bytes_of(format, numbers.size()));
    quantise(format, numbers, blocks.data());
    std::uint64_t hash = 14695981039346656037u;
    for (const std::byte byte : blocks) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211u;
    }
    EXPECT_EQ(hash, expected);
    // However many are rounded at a time.
    const auto width = static_cast<std::size_t>(block_shape(format).numbers);
    std::vector<std::byte> one(static_cast<std::size_t>(block_shape(format).bytes));
    for (std::size_t block = 0; block < numbers.size() / width; block += 7) {
      quantise(format, std::span(numbers).subspan(block * width, width), one.data());
      ASSERT_TRUE(std::equal(one.begin(), one.end(),
                             blocks.begin() + static_cast<std::ptrdiff_t>(block * one.size())))
          << block;
    }
  }
}

TEST(Quantise, ToFp8TakesTheNearestTiesToEven) {
  std::vector<std::pair<float, unsigned>> values;
  for (unsigned byte = 0; byte < 127; ++byte) {
    values.emplace_back(block_fields::value_of_e4m3(static_cast<std::byte>(byte)), byte);
  }
  std::mt19937 random(7);
  std::vector<float> numbers(64);
  std::vector<std::byte> block(68);
  for (int round = 0; round < 200; ++round) {
    const float scale = round % 2 == 0 ? 1.0f : std::ldexp(1.0f, static_cast<int>(random() % 60));
    for (float& number : numbers) {
      const std::size_t place = random() % 126;
      const float low = values[place].first, high = values[place + 1].first;
      // Ties and their neighbours too.
      const float middle = 0.5f * (low + high);
      const float exact[] = {low, middle, std::nextafter(middle, 0.0f),
                             std::nextafter(middle, 500.0f)};
      number = scale * exact[random() % 4] * (random() % 2 == 0 ? 1.0f : -1.0f);
    }
    numbers[static_cast<std::size_t>(round % 64)] = -448.0f * scale;
    quantise(WeightFormat::fp8, numbers, block.data());
    ASSERT_EQ(block_fields::float_at(block.data()), scale);
    for (std::size_t i = 0; i < 64; ++i) {
      const double wanted = std::abs(numbers[i]) / scale;
      unsigned best = 0;
      for (const auto& [value, byte] : values) {
        const double off = std::abs(wanted - value), least = std::abs(wanted - values[best].first);
        if (off < least || (off == least && byte % 2 == 0)) best = byte;
      }
      const auto got = std::to_integer<unsigned>(block[4 + i]);
      ASSERT_EQ(got & 127u, best) << wanted;
      ASSERT_EQ(got >= 128, std::signbit(numbers[i]));
    }
  }
}

TEST(Quantise, ToOwnFormatsTakesWhatIsSmallOrOnOneSide) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::int4}) {
    SCOPED_TRACE(name_of(format));
    EXPECT_EQ(requantised(format, std::vector<float>(64, 0.0f)), std::vector<float>(64, 0.0f));
    for (const float value : requantised(format, std::vector<float>(64, 1e-44f))) {
      EXPECT_LE(std::abs(value), 1e-43f);
    }
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> numbers(64);
      for (std::size_t i = 0; i < 64; ++i) numbers[i] = sign * (1.0f + static_cast<float>(i) / 64);
      const auto rounded = requantised(format, numbers);
      for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(rounded[i], numbers[i], 0.08f) << i;
    }
  }
}

// Steps of the range alone, which the search must be better than.
TEST(Quantise, ToInt4SearchesForTheLeastSquares) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(1 << 14);
  for (float& number : numbers) number = normal(random);
  const auto rounded = requantised(WeightFormat::int4, numbers);
  double searched = 0.0, plain = 0.0;
  for (std::size_t begin = 0; begin < numbers.size(); begin += 32) {
    const auto [low, high] = std::minmax_element(&numbers[begin], &numbers[begin] + 32);
    const float step = (*high - *low) / 15.0f, zero = std::nearbyint(-*low / step);
    for (std::size_t i = begin; i < begin + 32; ++i) {
      const float q = std::clamp(std::nearbyint(numbers[i] / step) + zero, 0.0f, 15.0f);
      plain += std::pow(static_cast<double>(step * (q - zero) - numbers[i]), 2.0);
      searched += std::pow(static_cast<double>(rounded[i] - numbers[i]), 2.0);
    }
  }
  std::cout << "[ int4 ] mean square " << searched / static_cast<double>(numbers.size())
            << ", of the range alone " << plain / static_cast<double>(numbers.size()) << "\n";
  EXPECT_LT(searched, 0.93 * plain);
}

TEST(WeightFormats, HaveNamesAndShapes) {
  for (const WeightFormat format : all_weight_formats) {
    const BlockShape shape = block_shape(format);
    EXPECT_EQ(dtype_of(format).has_value(), shape.numbers == 1) << name_of(format);
    EXPECT_EQ(bytes_of(format, 512), 512u / static_cast<std::uint64_t>(shape.numbers) *
                                         static_cast<std::uint64_t>(shape.bytes));
  }
  EXPECT_EQ(bytes_of(WeightFormat::q4_k, 256), 144u);
  EXPECT_EQ(name_of(WeightFormat::iq4_xs), "IQ4_XS");
}

TEST(WeightFormats, SeeScalesThatAreNotFinite) {
  std::mt19937 random(1);
  for (const WeightFormat format : testing::quantised_formats()) {
    if (format == WeightFormat::fp8) continue;  // above
    SCOPED_TRACE(name_of(format));
    const auto blocks = testing::random_blocks(format, 512, random);
    EXPECT_FALSE(has_non_finite_scale(format, blocks));
    // One of a block's bytes is its scale's upper one: with it, the exponent is full.
    const auto size = static_cast<std::size_t>(block_shape(format).bytes);
    int scales = 0;
    for (std::size_t at = blocks.size() - size; at < blocks.size(); ++at) {
      auto spoilt = blocks;
      spoilt[at] = std::byte{0x7c};
      scales += has_non_finite_scale(format, spoilt) ? 1 : 0;
    }
    EXPECT_EQ(scales, block_fields::has_stored_minimum(format) ? 2 : 1);
  }
}

TEST(PackedFormats, KeepEveryNumber) {
  std::mt19937 random(2);
  for (const WeightFormat format : testing::quantised_formats()) {
    for (const std::int64_t in : {256, 768}) {
      SCOPED_TRACE(name_of(format));
      const auto row_bytes = bytes_of(format, static_cast<std::uint64_t>(in));
      const std::vector<std::byte> blocks =
          testing::random_blocks(format, 16 * static_cast<std::uint64_t>(in), random);
      const std::byte* rows[cpu::strip_width];
      for (std::size_t o = 0; o < 16; ++o) rows[o] = o == 5 ? nullptr : &blocks[o * row_bytes];
      std::vector<std::byte> strip(static_cast<std::size_t>(cpu::strip_bytes(format, in)));
      cpu::pack_strip(format, rows, in, strip.data());
      std::vector<float> expected(static_cast<std::size_t>(in)), got(expected);
      for (std::int64_t o = 0; o < 16; ++o) {
        if (rows[o] == nullptr) {
          std::fill(expected.begin(), expected.end(), 0.0f);
        } else {
          dequantise(format, {rows[o], row_bytes}, expected.data());
        }
        cpu::unpack_row(format, strip.data(), in, o, got.data());
        ASSERT_EQ(got, expected) << "output " << o;
      }
    }
  }
}

TEST(PackedFormats, AreHardlyLargerThanFiles) {
  for (const WeightFormat format : testing::quantised_formats()) {
    const auto packed = static_cast<double>(cpu::strip_bytes(format, 256));
    const auto stored = static_cast<double>(bytes_of(format, 16 * 256));
    EXPECT_LE(packed / stored, 1.04) << name_of(format);
  }
}

}  // namespace
}  // namespace coppice
