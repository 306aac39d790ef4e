// Tables of rotary embeddings at long contexts, and which factors they take.
#include "models/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/naive_device.h"

namespace coppice::rope_table_test {
namespace {

using Kind = RopeSpec::Kind;

RopeSpec plain(std::int32_t rotated, double theta) {
  RopeSpec rope;
  rope.theta = theta;
  rope.rotated = rotated;
  return rope;
}

TEST(RopeTable, AnglesAreExactAt128k) {
  const auto device = testing::make_naive_device();
  const std::int32_t positions = 131072;
  RopeSpec rope = plain(8, 500000.0);
  rope.attention_factor = 1.25;
  const RopeTable table = make_rope_table(rope, positions, *device);
  EXPECT_EQ(table.positions, positions);
  EXPECT_EQ(table.half_dim, 4);
  EXPECT_EQ(table.cosine.bytes() + table.sine.bytes(), rope_table_bytes(rope, positions));
  const std::vector<float> frequencies = rope_frequencies(rope, positions);
  // Around the blocks that are made at a time, and at the end.
  for (const std::int64_t p : {0, 1, 4095, 4096, 4097, 100003, 131071}) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const long double angle =
          static_cast<long double>(p) * frequencies[static_cast<std::size_t>(i)];
      const auto at = static_cast<std::size_t>(4 * p + i);
      EXPECT_NEAR(table.cosine.as<float>()[at], 1.25L * std::cos(angle), 1.25 * 0x1p-23);
      EXPECT_NEAR(table.sine.as<float>()[at], 1.25L * std::sin(angle), 1.25 * 0x1p-23);
    }
  }
}

TEST(RopeTable, YarnKeepsShortWavesAndStretchesLongOnes) {
  RopeSpec rope = plain(128, 1000000.0);
  const std::vector<float> unscaled = rope_frequencies(rope, 1);
  rope.kind = Kind::yarn;
  rope.factor = 4.0;
  rope.original_context = 32768;
  const std::vector<float> scaled = rope_frequencies(rope, 1);
  for (std::size_t i = 0; i < 64; ++i) {
    const double turns = 32768.0 * double{unscaled[i]} / (2.0 * M_PI);
    const double kept = scaled[i] / unscaled[i];
    if (turns > 50.0) {
      EXPECT_FLOAT_EQ(static_cast<float>(kept), 1.0f) << i;
    } else if (turns < 0.8) {
      EXPECT_FLOAT_EQ(static_cast<float>(kept), 0.25f) << i;
    } else {
      EXPECT_TRUE(kept >= 0.25 - 1e-6 && kept <= 1.0 + 1e-6) << i;
    }
  }
}

TEST(RopeTable, LongRopeGoesByWhatTheModelIsLoadedFor) {
  RopeSpec rope = plain(4, 10000.0);
  rope.kind = Kind::longrope;
  rope.original_context = 4096;
  rope.short_factors = {1.0, 2.0};
  rope.long_factors = {1.0, 8.0};
  EXPECT_EQ(rope_frequencies(rope, 4096)[1], 4.0f * rope_frequencies(rope, 4097)[1]);
}

}  // namespace
}  // namespace coppice::rope_table_test
