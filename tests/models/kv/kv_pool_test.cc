// Slots of a KV pool: lowest first, against a set.
#include "models/kv/kv_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "reference/naive_device.h"

namespace coppice {
namespace {

KvLayout layout_of(std::int32_t pages, std::int32_t page_size) {
  return {.layers = 2, .kv_heads = 3, .head_dim = 4, .page_size = page_size, .pages = pages};
}

TEST(KvPool, HasTheMemoryOfItsLayout) {
  const auto device = testing::make_naive_device();
  const KvPool pool(*device, layout_of(5, 8));
  EXPECT_EQ(pool.bytes(), 2u * 2 * 5 * 3 * 8 * 4 * sizeof(float));
  EXPECT_EQ(pool.free_slots(), 40);
  EXPECT_NE(pool.keys(), nullptr);
  EXPECT_NE(pool.keys(), pool.values());
}

TEST(KvPool, HandsOutTheLowestFreeSlots) {
  const auto device = testing::make_naive_device();
  for (const std::int32_t slots : {1, 63, 64, 65, 128, 200}) {
    KvPool pool(*device, layout_of(slots, 1));
    std::set<KvSlot> free;
    for (KvSlot slot = 0; slot < slots; ++slot) free.insert(slot);
    std::vector<KvSlot> taken;
    std::mt19937 random(static_cast<std::uint32_t>(slots));
    for (int round = 0; round < 2000; ++round) {
      if (random() % 2 == 0) {
        std::vector<KvSlot> some(random() % 20);
        const bool enough = some.size() <= free.size();
        ASSERT_EQ(pool.take(some), enough);
        if (enough) {
          for (const KvSlot slot : some) {
            ASSERT_EQ(slot, *free.begin());
            free.erase(free.begin());
            taken.push_back(slot);
          }
        }
      } else {
        std::shuffle(taken.begin(), taken.end(), random);
        const std::size_t count = std::min<std::size_t>(taken.size(), random() % 20);
        pool.give_back(std::span(taken).last(count));
        free.insert(taken.end() - static_cast<std::ptrdiff_t>(count), taken.end());
        taken.resize(taken.size() - count);
      }
      ASSERT_EQ(pool.free_slots(), static_cast<std::int32_t>(free.size()));
    }
  }
}

TEST(KvPool, RefusesSlotsThatAreNotTaken) {
  const auto device = testing::make_naive_device();
  KvPool pool(*device, layout_of(10, 7));
  std::vector<KvSlot> slots(70);
  ASSERT_TRUE(pool.take(slots));
  KvSlot one[1] = {0};
  EXPECT_FALSE(pool.take(one));
  pool.give_back(std::span(slots).first(1));
  for (const KvSlot wrong : {0, -1, 70, 71, 127, 128, INT32_MAX, INT32_MIN}) {
    one[0] = wrong;
    EXPECT_THROW(pool.give_back(one), Error) << wrong;
  }
  EXPECT_EQ(pool.free_slots(), 1);
}

TEST(KvPool, RefusesImpossibleLayouts) {
  const auto device = testing::make_naive_device();
  EXPECT_THROW(KvPool(*device, layout_of(0, 16)), Error);
  EXPECT_THROW(KvPool(*device, layout_of(16, -1)), Error);
  const auto refusal = [&](const KvLayout& layout) -> std::string {
    try {
      KvPool(*device, layout);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_NE(refusal(layout_of(1 << 20, 1 << 12)).find("slots;"), std::string::npos);
  // Few enough slots, but keys of a layer, or bytes, that cannot be counted.
  KvLayout huge = layout_of(1 << 20, 1 << 10);
  huge.kv_heads = 2;
  EXPECT_NE(refusal(huge).find("keys in a layer"), std::string::npos);
  huge.kv_heads = 1;
  huge.layers = 1 << 14;
  huge.head_dim = 1 << 20;
  EXPECT_NE(refusal(huge).find("overflows"), std::string::npos);
}

}  // namespace
}  // namespace coppice
