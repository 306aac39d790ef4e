// Matrices as AWQ, GPTQ and compressed-tensors pack them: packed here by the published layouts, and
// read as the numbers that they stand for.
#include "models/packed_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/block_fields.h"
#include "models/checkpoint.h"
#include "models/requantised.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using Packed = WeightPacking::Kind;

constexpr std::size_t out = 24, in = 96, group = 32, groups = in / group;

struct Matrix {
  std::vector<int> q, zero;
  std::vector<float> scale;

  explicit Matrix(bool has_zeros, std::mt19937& random)
      : q(out * in), zero(out * groups), scale(out * groups) {
    for (int& number : q) number = static_cast<int>(random() % 16);
    for (int& z : zero) z = has_zeros ? 1 + static_cast<int>(random() % 15) : 8;
    // Scales of 8 bits, which F16 and BF16 hold alike.
    for (float& s : scale) s = std::ldexp(static_cast<float>(128 + random() % 128), -16);
  }
  float value(std::size_t o, std::size_t i, std::size_t g) const {
    return scale[o * groups + g] * static_cast<float>(q[o * in + i] - zero[o * groups + g]);
  }
};

std::string i32(const std::vector<std::uint32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), 4 * words.size()};
}
std::string f32(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}

/// [rows, columns / 8] of numbers at (row, 8 column + order[nibble]).
template <class At>
std::vector<std::uint32_t> packed(std::size_t rows, std::size_t columns, const At& at,
                                  const std::vector<std::size_t>& order = {0, 1, 2, 3, 4, 5, 6,
                                                                           7}) {
  std::vector<std::uint32_t> words(rows * columns / 8);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns / 8; ++c) {
      for (std::size_t nibble = 0; nibble < 8; ++nibble) {
        words[r * columns / 8 + c] |= static_cast<std::uint32_t>(at(r, 8 * c + order[nibble]))
                                      << 4 * nibble;
      }
    }
  }
  return words;
}

class PackedCheckpoints : public ::testing::Test {
 protected:
  std::unique_ptr<WeightSource> open(const std::vector<testing::TensorToWrite>& tensors,
                                     const WeightPacking& packing) {
    testing::write_file(folder_.path() / "model.safetensors", testing::safetensors_bytes(tensors));
    return unpacked(std::make_unique<Checkpoint>(folder_.path()), packing);
  }

  /// All of x.weight, in pieces of some rows.
  static std::vector<float> read(const WeightSource& source, const std::string& dtype) {
    const StoredTensor* const tensor = source.find("x.weight");
    EXPECT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, dtype);
    EXPECT_EQ(tensor->shape, (std::vector<std::uint64_t>{out, in}));
    const WeightFormat format = format_named(dtype).value();
    EXPECT_EQ(tensor->bytes, bytes_of(format, out * in));
    std::vector<std::byte> bytes(tensor->bytes);
    const std::size_t step = 5 * bytes.size() / out;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      source.read("x.weight", at, std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
    }
    std::vector<float> values(out * in);
    dequantise(format, bytes, values.data());
    EXPECT_EQ(source.names(), std::vector<std::string>{"x.weight"});
    return values;
  }

  static void expect_is(const Matrix& m, const std::vector<float>& values) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) {
        ASSERT_EQ(values[o * in + i], m.value(o, i, i / group)) << o << ", " << i;
      }
    }
  }

  std::vector<testing::TensorToWrite> awq_or_gptq(const Matrix& m, bool awq, int less) const {
    const std::vector<std::size_t> order = awq ? std::vector<std::size_t>{0, 2, 4, 6, 1, 3, 5, 7}
                                               : std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7};
    std::vector<std::uint32_t> numbers;
    if (awq) {
      numbers = packed(
          in, out, [&](auto i, auto o) { return m.q[o * in + i]; }, order);
    } else {
      numbers.resize(in / 8 * out);
      for (std::size_t i = 0; i < in; ++i) {
        for (std::size_t o = 0; o < out; ++o) {
          numbers[i / 8 * out + o] |= static_cast<std::uint32_t>(m.q[o * in + i]) << 4 * (i % 8);
        }
      }
    }
    const auto zeros = packed(
        groups, out, [&](auto g, auto o) { return m.zero[o * groups + g] - less; }, order);
    std::vector<float> scales(groups * out);
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t o = 0; o < out; ++o) scales[g * out + o] = m.scale[o * groups + g];
    }
    using Shape = std::vector<std::uint64_t>;
    return {{"x.qweight", "I32", awq ? Shape{in, out / 8} : Shape{in / 8, out}, i32(numbers)},
            {"x.qzeros", "I32", {groups, out / 8}, i32(zeros)},
            {"x.scales", "F32", {groups, out}, f32(scales)}};
  }

  testing::TemporaryFolder folder_;
  std::mt19937 random_{47};
};

TEST_F(PackedCheckpoints, OfAwq) {
  const Matrix m(true, random_);
  expect_is(m, read(*open(awq_or_gptq(m, true, 0), {Packed::awq, group, false}), "INT4"));
}

TEST_F(PackedCheckpoints, OfGptqInBothVersions) {
  const Matrix m(true, random_);
  expect_is(m, read(*open(awq_or_gptq(m, false, 1), {Packed::gptq, group, true}), "INT4"));
  expect_is(m, read(*open(awq_or_gptq(m, false, 0), {Packed::gptq, group, false}), "INT4"));
  // A g_idx that says what places say changes nothing.
  auto tensors = awq_or_gptq(m, false, 1);
  std::vector<std::uint32_t> index(in);
  for (std::size_t i = 0; i < in; ++i) index[i] = static_cast<std::uint32_t>(i / group);
  tensors.push_back({"x.g_idx", "I32", {in}, i32(index)});
  expect_is(m, read(*open(tensors, {Packed::gptq, group, true}), "INT4"));
}

TEST_F(PackedCheckpoints, OfGptqWithInputsInAnyGroup) {
  const Matrix m(true, random_);
  auto tensors = awq_or_gptq(m, false, 1);
  std::vector<std::uint32_t> index(in);
  for (std::size_t i = 0; i < in; ++i) index[i] = static_cast<std::uint32_t>((i * 7 + 3) % groups);
  tensors.push_back({"x.g_idx", "I32", {in}, i32(index)});
  const auto values = read(*open(tensors, {Packed::gptq, group, true}), "F32");
  for (std::size_t o = 0; o < out; ++o) {
    for (std::size_t i = 0; i < in; ++i) {
      ASSERT_EQ(values[o * in + i], m.value(o, i, index[i])) << o << ", " << i;
    }
  }
}

TEST_F(PackedCheckpoints, OfFourBitsOfCompressedTensors) {
  for (const bool zeros : {false, true}) {
    const Matrix m(zeros, random_);
    using Tensors = std::vector<testing::TensorToWrite>;
    Tensors tensors = {{"x.weight_packed",
                        "I32",
                        {out, in / 8},
                        i32(packed(out, in, [&](auto o, auto i) { return m.q[o * in + i]; }))},
                       {"x.weight_scale", "F32", {out, groups}, f32(m.scale)},
                       {"x.weight_shape", "I64", {2}, std::string(16, '\0')}};
    if (zeros) {
      std::vector<std::uint32_t> words(out / 8 * groups);
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t g = 0; g < groups; ++g) {
          words[o / 8 * groups + g] |= static_cast<std::uint32_t>(m.zero[o * groups + g])
                                       << 4 * (o % 8);
        }
      }
      tensors.push_back({"x.weight_zero_point", "I32", {out / 8, groups}, i32(words)});
    }
    expect_is(m, read(*open(tensors, {Packed::int4, group, false}), "INT4"));
  }
}

// Bit for bit scale times number, whatever holds them.
TEST_F(PackedCheckpoints, OfFp8ByTensorRowAndTile) {
  for (const std::size_t width : {std::size_t{96}, std::size_t{192}, std::size_t{320}}) {
    SCOPED_TRACE(width);
    const std::size_t rows = 130, across = (width + 127) / 128;
    std::string bytes;
    for (std::size_t i = 0; i < rows * width; ++i) {
      const unsigned byte = random_() % 256;
      bytes += static_cast<char>((byte & 127) == 127 ? byte - 1 : byte);
    }
    for (const std::size_t count : {std::size_t{1}, rows, 2 * across}) {
      std::vector<float> scales(count);
      for (float& scale : scales) scale = std::ldexp(static_cast<float>(random_() >> 8), -30);
      const bool tiles = count == 2 * across;
      const std::vector<std::uint64_t> shape =
          tiles ? std::vector<std::uint64_t>{2, across} : std::vector<std::uint64_t>{count, 1};
      const auto source =
          open({{"x.weight", "F8_E4M3", {rows, width}, bytes},
                {tiles ? "x.weight_scale_inv" : "x.weight_scale", "F32", shape, f32(scales)}},
               {Packed::fp8, 0, false});
      const StoredTensor& tensor = *source->find("x.weight");
      EXPECT_EQ(tensor.dtype, width % 64 == 0 ? "FP8" : "F32");
      const WeightFormat format = format_named(tensor.dtype).value();
      ASSERT_EQ(tensor.bytes, bytes_of(format, rows * width));
      std::vector<std::byte> stored(tensor.bytes);
      source->read("x.weight", 0, stored);
      std::vector<float> values(rows * width);
      dequantise(format, stored, values.data());
      for (std::size_t o = 0; o < rows; ++o) {
        for (std::size_t i = 0; i < width; ++i) {
          const std::size_t scale = count == 1 ? 0 : tiles ? o / 128 * across + i / 128 : o;
          const auto number =
              block_fields::value_of_e4m3(static_cast<std::byte>(bytes[o * width + i]));
          ASSERT_EQ(values[o * width + i], scales[scale] * number) << o << ", " << i;
        }
      }
    }
  }
}

// Blocks of FP8 are rounded to fewer bits like plain numbers.
TEST_F(PackedCheckpoints, OfFp8AreRoundedAgain) {
  constexpr std::size_t rows = 16, width = 192;
  std::string bytes;
  for (std::size_t i = 0; i < rows * width; ++i) bytes += static_cast<char>(random_() % 120);
  const std::vector<testing::TensorToWrite> tensors = {
      {"x.weight", "F8_E4M3", {rows, width}, bytes}, {"x.weight_scale", "F32", {1}, f32({0.01f})}};
  const auto values_as = [&](std::optional<WeightFormat> to, const char* dtype) {
    auto source = open(tensors, {Packed::fp8, 0, false});
    if (to) source = requantised(std::move(source), *to);
    const StoredTensor& tensor = *source->find("x.weight");
    EXPECT_EQ(tensor.dtype, dtype);
    std::vector<std::byte> stored(tensor.bytes);
    source->read("x.weight", 0, stored);
    std::vector<float> values(rows * width);
    dequantise(format_named(dtype).value(), stored, values.data());
    return values;
  };
  const auto plain = values_as(std::nullopt, "FP8");
  EXPECT_EQ(values_as(WeightFormat::fp8, "FP8"), plain);  // not again
  const auto rounded = values_as(WeightFormat::q8_0, "Q8_0");
  EXPECT_NE(rounded, plain);
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(rounded[i], plain[i], 0.013f) << i;
}

TEST_F(PackedCheckpoints, ThatDoNotFitAreRefusedByName) {
  const Matrix m(true, random_);
  const auto refusal = [&](const std::vector<testing::TensorToWrite>& tensors,
                           const WeightPacking& packing) {
    try {
      const auto source = open(tensors, packing);
      std::vector<std::byte> bytes(source->find("x.weight")->bytes);
      source->read("x.weight", 0, bytes);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  auto tensors = awq_or_gptq(m, true, 0);
  tensors.pop_back();
  EXPECT_NE(refusal(tensors, {Packed::awq, group, false}).find("x.scales"), std::string::npos);
  tensors = awq_or_gptq(m, true, 0);
  EXPECT_NE(refusal(tensors, {Packed::awq, 64, false}).find("x.qweight"), std::string::npos);
  EXPECT_NE(refusal(tensors, {Packed::awq, 96, false}).find("x.scales"), std::string::npos);
  tensors = awq_or_gptq(m, false, 1);
  tensors.push_back({"x.g_idx", "I32", {in}, i32(std::vector<std::uint32_t>(in, 9))});
  EXPECT_NE(refusal(tensors, {Packed::gptq, group, true}).find("group 9"), std::string::npos);
}

}  // namespace
}  // namespace coppice
