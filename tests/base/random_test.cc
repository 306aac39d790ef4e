#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace coppice {
namespace {

TEST(Random, EveryPartOfTheKeyChangesTheNumber) {
  const StepKey key{1, 2, 3, 4};
  const double base = uniform(RandomStream::draft, key, 5, 6);
  EXPECT_EQ(base, uniform(RandomStream::draft, key, 5, 6));
  std::set<double> seen{base};
  EXPECT_TRUE(seen.insert(uniform(RandomStream::accept, key, 5, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::residual, key, 5, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::draft, {9, 2, 3, 4}, 5, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::draft, {1, 9, 3, 4}, 5, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::draft, {1, 2, 9, 4}, 5, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::draft, key, 9, 6)).second);
  EXPECT_TRUE(seen.insert(uniform(RandomStream::draft, key, 5, 9)).second);
  // The position names coupled noise only.
  EXPECT_EQ(base, uniform(RandomStream::draft, {1, 2, 3, 9}, 5, 6));
}

TEST(Random, UniformsAreUniformAndInside) {
  constexpr int draws = 200000, cells = 64;
  std::vector<int> count(cells, 0);
  double sum = 0.0, sum_of_products = 0.0, previous = 0.5;
  for (int i = 0; i < draws; ++i) {
    const double u = uniform(RandomStream::accept, {7, 0, static_cast<std::uint64_t>(i), 0}, 1, 0);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++count[static_cast<std::size_t>(u * cells)];
    sum += u;
    sum_of_products += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  double chi_square = 0.0;
  for (int c : count) {
    const double expected = static_cast<double>(draws) / cells;
    chi_square += (c - expected) * (c - expected) / expected;
  }
  EXPECT_LT(chi_square, 140.0);  // 63 degrees of freedom: exceeded with probability 1e-7
  EXPECT_NEAR(sum / draws, 0.5, 5.5 * std::sqrt(1.0 / 12.0 / draws));
  EXPECT_NEAR(sum_of_products / draws, 0.0, 5.5 / 12.0 / std::sqrt(static_cast<double>(draws)));
}

// Returns the number's cell out of 2^52.
std::uint64_t cell_of(double u) {
  const double cell = u * 0x1p52 - 0.5;
  return static_cast<std::uint64_t>(cell);
}

// What sampling cannot see: numbers of fewer bits would cut off the tail of a large vocabulary.
TEST(Random, CellsAreSmallAndReachTheEnds) {
  EXPECT_EQ(to_unit(0), 0x1p-53);
  EXPECT_EQ(to_unit(~std::uint64_t{0}), 1.0 - 0x1p-53);
  EXPECT_EQ(to_unit(std::uint64_t{1} << 63), 0.5 + 0x1p-53);
  EXPECT_EQ(to_unit((std::uint64_t{1} << 63) - 1), 0.5 - 0x1p-53);
  for (int bit = 0; bit < 64; ++bit) {
    const double u = to_unit(std::uint64_t{1} << bit);
    EXPECT_EQ(u * 0x1p52 - std::floor(u * 0x1p52), 0.5) << "not the middle of a cell";
    const std::uint64_t cell = cell_of(u);
    EXPECT_EQ(cell, bit < 12 ? 0u : std::uint64_t{1} << (bit - 12)) << "bit " << bit;
  }
}

// Each of the 52 bits is set in half of the numbers, whatever any other bit is.
TEST(Random, AllBitsVaryAndNoneFollowsAnother) {
  constexpr int draws = 20000, bits = 52;
  const auto check = [](const char* what, const auto& number) {
    std::vector<std::uint64_t> cells;
    for (int i = 0; i < draws; ++i) cells.push_back(cell_of(number(static_cast<std::uint64_t>(i))));
    // 52 counts and 1326 pairs in each of 6 streams: 5.5 standard deviations are exceeded with
    // probability under 4e-4 in all, over other seeds than these.
    const double allowed = 5.5 * std::sqrt(0.25 * draws);
    for (int a = 0; a < bits; ++a) {
      for (int b = 0; b <= a; ++b) {
        int odd = 0;
        for (const std::uint64_t cell : cells) {
          odd += static_cast<int>((cell >> a ^ (a == b ? 0 : cell >> b)) & 1);
        }
        EXPECT_NEAR(odd, 0.5 * draws, allowed) << what << ": bits " << a << " and " << b;
      }
    }
  };
  for (const RandomStream stream :
       {RandomStream::draft, RandomStream::accept, RandomStream::residual}) {
    check("by index", [&](std::uint64_t i) { return uniform(stream, {7, 1, 2, 3}, 4, i); });
  }
  check("by node", [](std::uint64_t i) {
    return uniform(RandomStream::accept, {7, 1, 2, 3}, i, 0);
  });
  check("by step", [](std::uint64_t i) {
    return uniform(RandomStream::accept, {7, 1, i, 3}, 4, 0);
  });
  std::vector<double> coupled(draws);
  coupled_uniforms(1, 2, 3, 0, coupled);
  check("coupled", [&](std::uint64_t i) { return coupled[i]; });
}

TEST(Random, NodeKeysOfPathsDiffer) {
  // All paths of up to 5 ranks out of 8.
  std::vector<std::uint64_t> layer{root_node_key};
  std::set<std::uint64_t> all{root_node_key};
  for (int depth = 0; depth < 5; ++depth) {
    std::vector<std::uint64_t> next;
    for (std::uint64_t key : layer) {
      for (std::int32_t rank = 0; rank < 8; ++rank) {
        next.push_back(child_node_key(key, rank));
        EXPECT_TRUE(all.insert(next.back()).second);
      }
    }
    layer = next;
  }
}

// Saved seeds repeat their texts: the mixed bits are fixed.
TEST(Random, EpochsTakeTheUpperHalfOfANoisePosition) {
  EXPECT_EQ((StepKey{1, 2, 3, 4}.noise_position(5)), 9u);
  EXPECT_EQ((StepKey{1, 2, 3, 4, 7}.noise_position(5)), 9u + 7u * 0x1'0000'0000u);
}

TEST(Random, CoupledUniformsAreAddressedByToken) {
  std::vector<double> whole(100), part(20);
  coupled_uniforms(1, 2, 3, 0, whole);
  coupled_uniforms(1, 2, 3, 40, part);
  for (std::size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[40 + i]);
  coupled_uniforms(1, 2, 4, 40, part);
  EXPECT_NE(part[0], whole[40]);
}

}  // namespace
}  // namespace coppice
