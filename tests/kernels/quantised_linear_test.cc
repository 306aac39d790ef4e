// Products with quantised weights: bit for bit what the formats' own numbers give, whatever the row
// count, the threads and the instruction set (scripts/test-instruction-sets runs this under each).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/packed_format.h"
#include "kernels/cpu/quantised_rows.h"
#include "kernels/cpu/workers.h"
#include "kernels/weight_format.h"
#include "reference/quantised.h"

namespace coppice {
namespace {

using testing::quantised_formats;
using testing::random_blocks;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<float> random_x(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(index(count));
  for (float& value : x) value = normal(random);
  return x;
}

struct Layer {
  WeightFormat format;
  std::int64_t in, out;
  std::vector<std::byte> blocks;

  Layer(WeightFormat stored, std::int64_t inputs, std::int64_t outputs, std::mt19937& random)
      : format(stored),
        in(inputs),
        out(outputs),
        blocks(random_blocks(stored, static_cast<std::uint64_t>(inputs * outputs), random)) {}
  LinearPart part() const { return {blocks.data(), format, out}; }
  std::vector<float> numbers() const {
    std::vector<float> numbers(index(in * out));
    dequantise(format, blocks, numbers.data());
    return numbers;
  }
};

/// 32 neighbouring activations.
struct Group {
  int numbers[32];
  float scale;
  explicit Group(const float* x) {
    float most = 0.0f;
    for (int i = 0; i < 32; ++i) most = std::max(most, std::abs(x[i]));
    const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
    scale = most / 127.0f;
    for (int i = 0; i < 32; ++i) numbers[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  }
};

/// One output: whole sums of as many inputs as share a scale, added up in f32, fused; of fp8 a
/// product at a time.
float expected_sum(const Layer& layer, std::int64_t output, const float* x, bool fused) {
  const BlockShape shape = block_shape(layer.format);
  const std::byte* block =
      layer.blocks.data() + output * static_cast<std::int64_t>(bytes_of(
                                         layer.format, static_cast<std::uint64_t>(layer.in)));
  float sum = 0.0f;
  if (!has_integers(layer.format)) {
    std::vector<float> row(index(layer.in));
    dequantise(layer.format, {block, bytes_of(layer.format, row.size())}, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const volatile float product = x[i] * row[i];
      sum = fused ? std::fma(x[i], row[i], sum) : product + sum;
    }
    return sum;
  }
  for (std::int64_t begin = 0; begin < layer.in; begin += shape.numbers, block += shape.bytes) {
    block_fields::Numbers numbers;
    block_fields::read_numbers(layer.format, block, numbers);
    block_fields::Scales scales;
    block_fields::read_scales(layer.format, block, scales);
    for (std::int64_t i = 0; i < shape.numbers; i += scales.group) {
      const Group group(x + begin + i / 32 * 32);
      int products = 0, of_x = 0;
      for (std::int64_t k = i; k < i + scales.group; ++k) {
        products += numbers[index(k)] * group.numbers[k % 32];
        of_x += group.numbers[k % 32];
      }
      const std::int64_t g = i / scales.group;
      sum = std::fma(static_cast<float>(products), scales.scale_of(g) * group.scale, sum);
      if (scales.has_minima) {
        sum = std::fma(scales.minimum_of(g), group.scale * static_cast<float>(of_x), sum);
      }
    }
  }
  return sum;
}

std::vector<float> run(cpu::LinearEngine& engine, const LinearWeights& weights,
                       const std::vector<float>& x, std::int32_t rows, float before = 0.0f) {
  std::vector<float> y(index(rows * weights.out_features()), before);
  engine.run(weights, x.data(), rows, y.data(), before != 0.0f);
  return y;
}

/// Whether products in f32 are added without being rounded first.
bool fuses(cpu::LinearEngine& engine) {
  const std::vector<float> x = {-1.0f, 1.0f + 0x1p-12f}, weights = {1.0f + 0x1p-11f, x[1]};
  const LinearPart part{weights.data(), DType::f32, 1};
  return run(engine, *engine.pack({&part, 1}, 2, {}, 1), x, 1)[0] != 0.0f;
}

class QuantisedProducts : public ::testing::TestWithParam<WeightFormat> {
 protected:
  std::mt19937 random_{47};
  cpu::Workers workers_{2};
  cpu::LinearEngine integers_{DType::f32, true, workers_};
  cpu::LinearEngine floats_{DType::f32, false, workers_};
};

TEST_P(QuantisedProducts, AreTheFormatsOwnSums) {
  const WeightFormat format = GetParam();
  const std::int64_t least = block_shape(format).numbers;
  const bool fused = fuses(floats_);
  for (const auto& [in, out] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{least, 1}, {least * 3, 17}, {768, 70}}) {
    const Layer layer(format, in, out, random_);
    const LinearPart part = layer.part();
    const std::vector<float> bias = random_x(out, random_);
    const auto weights = integers_.pack({&part, 1}, in, bias, 200);
    EXPECT_EQ(weights->out_features(), out);
    for (const std::int32_t rows : {1, 2, 3, 5, 8, 9, 13, 100}) {
      const std::vector<float> x = random_x(rows * in, random_);
      const std::vector<float> y = run(integers_, *weights, x, rows, 0.75f);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t j = 0; j < out; ++j) {
          ASSERT_EQ(y[index(r * out + j)],
                    0.75f + (expected_sum(layer, j, &x[index(r * in)], fused) + bias[index(j)]))
              << rows << " rows, row " << r << ", output " << j << " of " << out << ", in " << in;
        }
      }
    }
  }
}

// Speculation on quantised weights is exact for that reason alone.
TEST_P(QuantisedProducts, DoNotDependOnNeighboursOrThreads) {
  const Layer layer(GetParam(), 512, 200, random_);
  const LinearPart part = layer.part();
  cpu::Workers alone(1);
  cpu::LinearEngine other(DType::f32, true, alone);
  const auto weights = integers_.pack({&part, 1}, layer.in, {}, 64);
  const auto same = other.pack({&part, 1}, layer.in, {}, 64);
  const std::vector<float> x = random_x(64 * layer.in, random_);
  const std::vector<float> all = run(integers_, *weights, x, 64);
  for (std::int32_t rows = 1; rows <= 64; ++rows) {
    const std::vector<float> some = run(other, *same, x, rows);
    ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows;
  }
}

TEST_P(QuantisedProducts, InF32AreThoseOfTheNumbers) {
  const Layer layer(GetParam(), 512, 70, random_);
  const std::vector<float> numbers = layer.numbers();
  const LinearPart part = layer.part(), plain{numbers.data(), DType::f32, layer.out};
  const auto weights = floats_.pack({&part, 1}, layer.in, {}, 130);
  const auto expected = floats_.pack({&plain, 1}, layer.in, {}, 130);
  EXPECT_LT(weights->bytes() * 3, expected->bytes());
  for (const std::int32_t rows : {1, 2, 3, 4, 5, 6, 7, 130}) {
    const std::vector<float> x = random_x(rows * layer.in, random_);
    EXPECT_EQ(run(floats_, *weights, x, rows), run(floats_, *expected, x, rows)) << rows;
  }
}

// What is expected of one scale is not what another gives.
TEST_P(QuantisedProducts, NoticeTheScaleOfTheNextBlock) {
  const Layer layer(GetParam(), 512, 20, random_);
  Layer planted = layer;
  const auto size = index(block_shape(layer.format).bytes);
  const auto at =
      index(block_fields::d_of(layer.format, layer.blocks.data()) - layer.blocks.data());
  std::copy_n(&layer.blocks[at + size], layer.format == WeightFormat::fp8 ? 4 : 2,
              &planted.blocks[at]);
  const LinearPart part = planted.part();
  const auto weights = integers_.pack({&part, 1}, layer.in, {}, 8);
  for (const std::int32_t rows : {1, 8}) {
    const std::vector<float> x = random_x(rows * layer.in, random_);
    const std::vector<float> y = run(integers_, *weights, x, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      EXPECT_NE(y[index(r * 20)], expected_sum(layer, 0, &x[index(r * layer.in)], fuses(floats_)));
      EXPECT_EQ(y[index(r * 20 + 1)],
                expected_sum(layer, 1, &x[index(r * layer.in)], fuses(floats_)));
    }
  }
}

// Tied embeddings of plain F32 need no second copy either.
TEST(PlainProducts, OfF32GiveRowsOfAnEmbedding) {
  std::mt19937 random(3);
  cpu::Workers workers(1);
  cpu::LinearEngine floats(DType::f32, false, workers);
  const std::vector<float> numbers = random_x(40 * 70, random);
  const LinearPart part{numbers.data(), DType::f32, 70};
  const auto weights = floats.pack({&part, 1}, 40, {}, 8);
  ASSERT_EQ(weights->table().packed, weights.get());
  std::vector<float> row(40);
  for (const std::int64_t j : {0, 17, 63, 64, 69}) {
    floats.embed_row(*weights, j, 3.0f, row.data());
    for (std::int64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(row[index(i)], 3.0f * numbers[index(j * 40 + i)]) << j << ", " << i;
    }
  }
}

TEST_P(QuantisedProducts, GiveRowsOfAnEmbedding) {
  const Layer layer(GetParam(), 512, 70, random_);
  const LinearPart part = layer.part();
  const auto weights = integers_.pack({&part, 1}, layer.in, {}, 8);
  ASSERT_EQ(weights->table().packed, weights.get());
  const std::vector<float> numbers = layer.numbers();
  std::vector<float> row(512);
  for (const std::int64_t j : {0, 17, 63, 64, 69}) {
    integers_.embed_row(*weights, j, 3.0f, row.data());
    for (std::int64_t i = 0; i < 512; ++i) {
      ASSERT_EQ(row[index(i)], 3.0f * numbers[index(j * 512 + i)]) << j << ", " << i;
    }
  }
}

TEST_P(QuantisedProducts, SeeScalesThatAreNotFinite) {
  Layer layer(GetParam(), 512, 70, random_);
  LinearPart part = layer.part();
  EXPECT_FALSE(integers_.pack({&part, 1}, layer.in, {}, 8)->has_non_finite());
  const auto size = index(block_shape(layer.format).bytes);
  const std::byte* const last = layer.blocks.data() + layer.blocks.size() - size;
  const auto at = index(block_fields::d_of(layer.format, last) - layer.blocks.data());
  layer.blocks[at + (layer.format == WeightFormat::fp8 ? 3 : 1)] = std::byte{0x7c};
  part = layer.part();
  EXPECT_TRUE(integers_.pack({&part, 1}, layer.in, {}, 8)->has_non_finite());
}

// What is not a number reaches the result, so that nobody takes it for one.
TEST_P(QuantisedProducts, PassNonFiniteActivationsOn) {
  const Layer layer(GetParam(), 512, 20, random_);
  const LinearPart part = layer.part();
  const auto weights = integers_.pack({&part, 1}, layer.in, {}, 8);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = random_x(3 * layer.in, random_);
    x[700] = bad;
    const std::vector<float> y = run(integers_, *weights, x, 3);
    for (std::int64_t j = 0; j < 20; ++j) {
      EXPECT_TRUE(std::isfinite(y[index(j)]) && std::isfinite(y[index(40 + j)]));
      EXPECT_FALSE(std::isfinite(y[index(20 + j)])) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedProducts, ::testing::ValuesIn(quantised_formats()),
                         [](const auto& format) { return std::string(name_of(format.param)); });

// q, k and v of a Q4_K_M file are of two formats.
TEST(QuantisedLayers, KeepThePartsOwnFormats) {
  std::mt19937 random(3);
  cpu::Workers workers(2);
  for (const bool integers : {false, true}) {
    cpu::LinearEngine engine(DType::f32, integers, workers);
    const Layer layers[] = {{WeightFormat::q4_k, 256, 70, random},
                            {WeightFormat::q4_k, 256, 9, random},
                            {WeightFormat::q6_k, 256, 33, random}};
    const std::vector<float> plain = random_x(256 * 5, random);
    std::vector<LinearPart> parts;
    for (const Layer& layer : layers) parts.push_back(layer.part());
    parts.emplace_back(plain.data(), DType::f32, 5);
    const std::vector<float> bias = random_x(117, random);
    const auto weights = engine.pack(parts, 256, bias, 8);
    EXPECT_EQ(weights->out_features(), 117);
    EXPECT_FALSE(weights->table().is_there());
    const std::vector<float> x = random_x(3 * 256, random);
    const std::vector<float> y = run(engine, *weights, x, 3);
    std::int64_t first = 0;
    for (const LinearPart& part : parts) {
      const auto alone = engine.pack(
          {&part, 1}, 256, std::span(bias).subspan(index(first), index(part.out_features)), 8);
      const std::vector<float> expected = run(engine, *alone, x, 3);
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t j = 0; j < part.out_features; ++j) {
          ASSERT_EQ(y[index(r * 117 + first + j)], expected[index(r * part.out_features + j)])
              << first << ", " << j;
        }
      }
      first += part.out_features;
    }
  }
}

template <int kRows>
void expect_tile(const cpu::QuantisedRows& rows, std::int32_t first, const std::vector<float>& x) {
  ASSERT_EQ(rows.tile_rows(first), kRows);
  const auto* const groups = reinterpret_cast<const cpu::RowGroup<kRows>*>(rows.tile(first));
  for (std::int64_t g = 0; g < rows.groups(); ++g) {
    for (int r = 0; r < kRows; ++r) {
      const float* const values = &x[index((first + r) * rows.in() + 32 * g)];
      float most = 0.0f;
      int sums[3] = {0, 0, 0};
      const float scale = groups[g].scales[r];
      for (int i = 0; i < 32; ++i) {
        most = std::max(most, std::abs(values[i]));
        const int number = groups[g].numbers[r][i];
        sums[0] += number;
        sums[1 + i / 16] += number;
        if (scale == 0.0f) continue;
        EXPECT_NEAR(scale * static_cast<float>(number), values[i], scale * 0.50001f);
      }
      EXPECT_EQ(scale, most < 1e-36f ? 0.0f : most / 127.0f);
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(groups[g].negated_sums[s][r], -sums[s]);
        EXPECT_EQ(groups[g].scaled_sums[s][r], scale * static_cast<float>(sums[s]));
      }
    }
  }
}

TEST(QuantisedActivations, AreWithinHalfAStep) {
  std::mt19937 random(4);
  cpu::Workers workers(2);
  std::vector<float> x = random_x(11 * 96, random);
  for (std::size_t i = 96; i < 128; ++i) x[i] = 0.0f;
  for (std::size_t i = 128; i < 160; ++i) x[i] *= 1e-42f;  // too small for a scale
  cpu::QuantisedRows rows;
  rows.assign(x.data(), 11, 96, workers);
  expect_tile<8>(rows, 0, x);
  expect_tile<3>(rows, 8, x);
}

}  // namespace
}  // namespace coppice
