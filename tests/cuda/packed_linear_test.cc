#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cuda/linear_rig.h"
#include "cuda/rounding.h"
#include "kernels/random_values.h"
#include "reference/packed_weights.h"
#include "reference/quantised.h"

namespace coppice::packed_linear_test {
namespace {

using testing::GuardedArray;
using testing::nearest_bf16;
using testing::widened;

struct Stored {
  WeightFormat format;
  std::int64_t out;
  std::vector<std::byte> blocks;
  std::vector<std::byte> packed;
};

class CudaPacked : public testing::LinearRig {
 protected:
  void SetUp() override {
    LinearRig::SetUp();
    if (!IsSkipped() && !engine_->streams()) GTEST_SKIP() << "no streamed products on this GPU";
  }

  std::vector<Stored> layer(const std::vector<std::pair<WeightFormat, std::int64_t>>& parts,
                            std::int64_t in) {
    std::vector<Stored> stored;
    for (const auto& [format, out] : parts) {
      stored.push_back(
          {format,
           out,
           testing::random_blocks(format, static_cast<std::uint64_t>(in * out), random_),
           {}});
      const LinearPart part(stored.back().blocks.data(), format, out);
      stored.back().packed = testing::packed_bytes_in(part, in);
    }
    return stored;
  }
  std::unique_ptr<LinearWeights> pack(const std::vector<Stored>& stored, std::int64_t in,
                                      const std::vector<float>& bias) {
    std::vector<LinearPart> parts;
    for (const Stored& one : stored) parts.emplace_back(one.blocks.data(), one.format, one.out);
    return engine_->pack(parts, in, bias, 512);
  }

  std::vector<std::uint16_t> random_x(std::int64_t rows, std::int64_t in) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(rows * in));
    for (auto& value : x) {
      value = nearest_bf16(
          static_cast<float>(static_cast<std::int32_t>(random_() >> 8)) * 0x1p-23f - 1.0f);
    }
    return x;
  }
  std::vector<float> product(const LinearWeights& weights, std::vector<std::uint16_t> x,
                             std::int32_t rows, const std::vector<float>& former = {}) {
    const std::int64_t padded = cuda::padded_row_count(rows);
    x.resize(static_cast<std::size_t>(padded * weights.in_features()), 0xffff);
    const GuardedArray<std::uint16_t> device_x(x);
    GuardedArray<float> out(static_cast<std::size_t>(padded * weights.out_features()));
    if (!former.empty()) {
      auto all = former;
      all.resize(static_cast<std::size_t>(padded * weights.out_features()), 0.0f);
      out.upload(all);
    }
    engine_->run(weights, device_x.data(), rows, out.data(), !former.empty(), stream_);
    auto got = out.download();
    EXPECT_TRUE(out.guards_intact());
    got.resize(static_cast<std::size_t>(rows * weights.out_features()));
    return got;
  }

  /// Results beyond what sums in f32 may be off by; `planted` moves the inputs of a weight.
  std::int64_t wrong(const std::vector<Stored>& stored, std::int64_t in,
                     const std::vector<float>& bias, const std::vector<std::uint16_t>& x,
                     std::int32_t rows, const std::vector<float>& former,
                     const std::vector<float>& got, std::int64_t planted = 0) {
    std::int64_t out = 0, first = 0, found = 0;
    for (const Stored& one : stored) out += one.out;
    for (const Stored& one : stored) {
      const cuda::PackedLayout layout = cuda::packed_layout(one.format).value();
      const std::int64_t step = std::max<std::int64_t>(1, one.out * rows * in / 400'000);
      for (std::int64_t look = 0; look < one.out * rows; look += step) {
        const std::int64_t j = look % one.out, r = look / one.out;
        const auto at = static_cast<std::size_t>(r * out + first + j);
        double sum = former.empty() ? 0.0 : static_cast<double>(former[at]);
        if (!bias.empty()) sum += static_cast<double>(bias[static_cast<std::size_t>(first + j)]);
        double absolute = std::abs(sum);
        for (std::int64_t i = 0; i < in; ++i) {
          const auto weight = testing::packed_weight(layout, one.packed, j, (i + planted) % in, in);
          const double value =
              static_cast<double>(widened(x[static_cast<std::size_t>(r * in + i)]));
          const auto product = weight.value() * value;
          sum += product;
          absolute += std::abs(product);
        }
        // For E4M3, sums of 32 inputs are added in f32 once scaled: 1/64 of a unit more for each
        // input.
        const double bound = (1.25 * static_cast<double>(in) + 66) * 0x1p-23 * absolute;
        if (!(std::abs(got[at] - sum) <= bound)) ++found;
      }
      first += one.out;
    }
    return found;
  }

  std::mt19937 random_{9};
};

TEST_F(CudaPacked, EveryFormatAndRowCount) {
  for (const WeightFormat format : testing::quantised_formats()) {
    if (!cuda::packed_layout(format)) continue;
    SCOPED_TRACE(name_of(format));
    for (const auto& [out, in] :
         {std::pair<std::int64_t, std::int64_t>{40, 256}, {19, 768}, {4096, 512}, {9000, 256}}) {
      const auto stored = layer({{format, out}}, in);
      const auto weights = pack(stored, in, {});
      ASSERT_EQ(engine_->implementation(*weights, 1, false), "packed");
      for (const std::int32_t rows : {1, 7, 8, 9, 16, 17, 33, 64, 65, 96, 97, 200}) {
        const auto x = random_x(rows, in);
        const auto got = product(*weights, x, rows);
        EXPECT_EQ(wrong(stored, in, {}, x, rows, {}, got), 0)
            << rows << " rows of " << out << " x " << in;
      }
    }
  }
}

TEST_F(CudaPacked, PartsOfSeveralFormatsWithBiasAndFormerValues) {
  constexpr std::int64_t in = 1024;
  const auto stored = layer({{WeightFormat::q4_k, 512},
                             {WeightFormat::q4_1, 128},
                             {WeightFormat::q6_k, 128},
                             {WeightFormat::fp8, 256},
                             {WeightFormat::q8_0, 1792}},
                            in);
  std::vector<float> bias(2816);
  for (float& value : bias) value = static_cast<float>(random_() % 100) * 0.01f;
  const auto weights = pack(stored, in, bias);
  EXPECT_EQ(engine_->implementation(*weights, 1, false), "packed");
  for (const std::int32_t rows : {1, 20, 96, 130}) {
    const auto x = random_x(rows, in);
    std::vector<float> former(static_cast<std::size_t>(rows * 2816));
    for (float& value : former) value = static_cast<float>(random_() % 100) * 0.1f;
    const auto got = product(*weights, x, rows, former);
    EXPECT_EQ(wrong(stored, in, bias, x, rows, former, got), 0) << rows;
    EXPECT_GT(wrong(stored, in, bias, x, rows, former, got, 1), 0) << "a planted shift";
    EXPECT_GT(wrong(stored, in, {}, x, rows, former, got), 0) << "a planted lack of bias";
  }
}

TEST_F(CudaPacked, RowsHaveTheSameBitsInEveryPass) {
  for (const auto& [format, out, in] :
       {std::tuple<WeightFormat, std::int64_t, std::int64_t>{WeightFormat::q4_0, 4096, 4096},
        {WeightFormat::q4_k, 11008, 2048},
        {WeightFormat::q6_k, 2048, 11008},
        {WeightFormat::fp8, 6144, 4096},
        {WeightFormat::q8_0, 6144, 4096}}) {
    SCOPED_TRACE(name_of(format));
    const auto stored = layer({{format, out}}, in);
    const auto weights = pack(stored, in, {});
    const auto x = random_x(200, in);
    const auto all = product(*weights, x, 200);
    for (const std::int32_t rows : {1, 5, 16, 31, 64, 80, 96, 130}) {
      for (const std::int32_t first : {0, 200 - rows}) {
        const std::vector<std::uint16_t> some(x.begin() + first * in,
                                              x.begin() + (first + rows) * in);
        const auto got = product(*weights, some, rows);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + first * out))
            << rows << " rows from " << first;
      }
    }
  }
}

// The bound above notices a scale of the next block, and one that was rounded to bf16.
TEST_F(CudaPacked, ScalesOfFp8AreTheirBlocksAndF32) {
  constexpr std::int64_t in = 256, out = 48;
  auto stored = layer({{WeightFormat::fp8, out}}, in);
  const auto weights = pack(stored, in, {});
  const auto x = random_x(9, in);
  const auto got = product(*weights, x, 9);
  EXPECT_EQ(wrong(stored, in, {}, x, 9, {}, got), 0);
  auto shifted = stored, rounded = stored;
  const auto blocks = static_cast<std::int64_t>(stored[0].blocks.size() / 68);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto at = static_cast<std::size_t>(68 * block);
    const auto next = static_cast<std::size_t>(68 * ((block + 1) % blocks));
    std::memcpy(&shifted[0].blocks[at], &stored[0].blocks[next], 4);
    rounded[0].blocks[at] = rounded[0].blocks[at + 1] = std::byte{0};
  }
  for (auto* planted : {&shifted, &rounded}) {
    const LinearPart part((*planted)[0].blocks.data(), WeightFormat::fp8, out);
    (*planted)[0].packed = testing::packed_bytes_in(part, in);
    EXPECT_GT(wrong(*planted, in, {}, x, 9, {}, got), 0);
  }
}

// Where they cannot be packed they become bf16.
TEST_F(CudaPacked, OtherShapesBecomeBf16) {
  std::mt19937 random(2);
  const auto blocks = testing::random_blocks(WeightFormat::q8_0, 32 * 16, random);
  const LinearPart part(blocks.data(), WeightFormat::q8_0, 16);
  const auto weights = engine_->pack({&part, 1}, 32, {}, 8);
  EXPECT_NE(engine_->implementation(*weights, 1, false), "packed");
  std::vector<float> values(32 * 16);
  dequantise(WeightFormat::q8_0, blocks, values.data());
  std::vector<std::uint16_t> x(32, 0);
  x[5] = nearest_bf16(1.0f);
  const auto got = product(*weights, x, 1);
  for (std::size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(got[j], widened(nearest_bf16(values[j * 32 + 5])));
  }
}

}  // namespace
}  // namespace coppice::packed_linear_test
