#include "kernels/cuda/linear/packed_layout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/packed_weights.h"
#include "reference/quantised.h"

namespace coppice {
namespace {

std::vector<WeightFormat> packed_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat format : testing::quantised_formats()) {
    if (cuda::packed_layout(format)) formats.push_back(format);
  }
  return formats;
}

TEST(PackedLayout, HoldsTheFilesNumbers) {
  std::mt19937 random(3);
  EXPECT_EQ(packed_formats().size(), 13u);  // all but q2_k
  for (const WeightFormat format : packed_formats()) {
    SCOPED_TRACE(name_of(format));
    constexpr std::int64_t in = 512, outputs = 19;
    const auto blocks = testing::random_blocks(format, in * outputs, random);
    std::vector<float> expected(in * outputs);
    dequantise(format, blocks, expected.data());
    const LinearPart part(blocks.data(), format, outputs);
    const auto bytes = testing::packed_bytes_in(part, in);
    const cuda::PackedLayout layout = cuda::packed_layout(format).value();
    for (std::int64_t j = 0; j < 24; ++j) {
      for (std::int64_t i = 0; i < in; ++i) {
        const testing::PackedWeight weight = testing::packed_weight(layout, bytes, j, i, in);
        if (j >= outputs) {
          ASSERT_EQ(weight.scale, 0.0f);
          continue;
        }
        if (format == WeightFormat::fp8) {  // nothing is rounded but the product, in f32
          ASSERT_EQ(static_cast<float>(weight.value()),
                    expected[static_cast<std::size_t>(j * in + i)]);
          continue;
        }
        // Scales and minima are rounded to bf16, by up to 2^-8, and so is the weight.
        const double bound =
            0x1.02p-7 * (std::abs(weight.scale * weight.number) + std::abs(weight.minimum));
        ASSERT_NEAR(weight.value(), expected[static_cast<std::size_t>(j * in + i)], bound + 1e-30)
            << j << ", " << i;
      }
    }
  }
}

TEST(PackedLayout, IsReadInAnyPieces) {
  std::mt19937 random(4);
  constexpr std::int64_t in = 256, outputs = 30;
  const auto blocks = testing::random_blocks(WeightFormat::q6_k, in * outputs, random);
  const LinearPart part(blocks.data(), WeightFormat::q6_k, outputs);
  const auto whole = testing::packed_bytes_in(part, in);
  std::atomic<bool> non_finite{false};
  const HostBytes bytes = cuda::packed_bytes_of(part, in, non_finite);
  for (int round = 0; round < 200; ++round) {
    const std::size_t offset = random() % whole.size();
    std::vector<std::byte> piece(random() % (whole.size() - offset) + 1);
    bytes.read(offset, piece);
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(),
                           whole.begin() + static_cast<std::ptrdiff_t>(offset)));
  }
  EXPECT_FALSE(non_finite);
}

TEST(PackedLayout, NoticesScalesThatAreNoNumbers) {
  std::mt19937 random(5);
  constexpr std::int64_t in = 64;
  auto blocks = testing::random_blocks(WeightFormat::q8_0, in * 8, random);
  blocks[1] = std::byte{0x7e};
  const LinearPart part(blocks.data(), WeightFormat::q8_0, 8);
  std::vector<std::byte> bytes(static_cast<std::size_t>(
      cuda::packed_bytes(cuda::packed_layout(WeightFormat::q8_0).value(), 8, in)));
  std::atomic<bool> non_finite{false};
  cuda::packed_bytes_of(part, in, non_finite).read(0, bytes);
  EXPECT_TRUE(non_finite);
}

TEST(PackedLayout, NoticesE4m3ThatIsNoNumber) {
  std::mt19937 random(6);
  constexpr std::int64_t in = 128;
  const auto blocks = testing::random_blocks(WeightFormat::fp8, in * 8, random);
  const auto non_finite = [&](std::size_t at, int byte) {
    auto spoilt = blocks;
    spoilt[at] = static_cast<std::byte>(byte);
    const LinearPart part(spoilt.data(), WeightFormat::fp8, 8);
    std::vector<std::byte> bytes(static_cast<std::size_t>(
        cuda::packed_bytes(cuda::packed_layout(WeightFormat::fp8).value(), 8, in)));
    std::atomic<bool> found{false};
    cuda::packed_bytes_of(part, in, found).read(0, bytes);
    return found.load();
  };
  EXPECT_FALSE(non_finite(68 + 4, 0x7e));
  EXPECT_TRUE(non_finite(68 + 4, 0x7f));
  EXPECT_TRUE(non_finite(68 + 67, 0xff));
  EXPECT_TRUE(non_finite(68 + 3, 0x7f));  // a scale of 2^127 and more
}

}  // namespace
}  // namespace coppice
