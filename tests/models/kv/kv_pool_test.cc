// Slots of a KV pool: lowest first, and in pages of texts; against a set.
#include "models/kv/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/kv/kv_slots.h"
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

/// Texts that grow side by side, a few tokens at a time, each with siblings that are refused: what
/// they keep lies as if each had been alone.
TEST(KvPool, TextsHavePagesOfTheirOwn) {
  const auto device = testing::make_naive_device();
  for (const std::int32_t page_size : {1, 5, 16}) {
    KvPool pool(*device, layout_of(4 * (80 / page_size + 2), page_size));
    std::vector<KvSlots> texts;
    for (int t = 0; t < 3; ++t) texts.emplace_back(&pool);
    std::mt19937 random(static_cast<std::uint32_t>(page_size));
    for (int step = 0; step < 20; ++step) {
      for (KvSlots& text : texts) {
        const auto more = static_cast<std::int32_t>(random() % 4 + 1);
        std::vector<std::int32_t> positions;
        for (std::int32_t i = 0; i < more; ++i) positions.push_back(text.size() + i);
        for (std::int32_t i = 0; i < more; ++i) positions.push_back(text.size() + i);
        KvSlots taken(&pool);
        text.make_room(more);
        ASSERT_TRUE(taken.take(positions, text.open_page(0)));
        text.keep(taken, 0, more);
      }
    }
    for (const KvSlots& text : texts) {
      for (std::int32_t at = 0; at < text.size(); ++at) {
        const auto slots = text.all().subspan(static_cast<std::size_t>(at));
        EXPECT_EQ(slots[0] % page_size, at % page_size);
        if (slots.size() == 1 || (at + 1) % page_size == 0) continue;
        EXPECT_EQ(slots[1], slots[0] + 1);
      }
    }
  }
}

/// A text that begins within a page has its tokens at their places, too; what has no page goes on
/// with slots that are free.
TEST(KvPool, WishesForPlacesKeepNobodyFromSlots) {
  const auto device = testing::make_naive_device();
  KvPool pool(*device, layout_of(2, 8));
  KvSlots late(&pool), other(&pool), third(&pool);
  ASSERT_TRUE(late.take(std::vector<std::int32_t>{5, 6, 7}, late.open_page(5)));
  EXPECT_TRUE(std::ranges::equal(late.all(), std::vector<KvSlot>{5, 6, 7}));
  ASSERT_TRUE(other.take(std::vector<std::int32_t>{0, 1, 1}, other.open_page(0)));
  EXPECT_TRUE(std::ranges::equal(other.all(), std::vector<KvSlot>{8, 9, 15}));
  EXPECT_EQ(other.open_page(0), 8);
  ASSERT_TRUE(third.take(std::vector<std::int32_t>(10, 3), third.open_page(3)));
  EXPECT_EQ(pool.free_slots(), 0);
  EXPECT_FALSE(late.take(std::vector<std::int32_t>{8}, late.open_page(5)));
  EXPECT_EQ(late.size(), 3);
}

/// Whatever is taken, by positions or not, and given back: every slot has one owner or is free,
/// and all that are free can be had.
TEST(KvPool, HandsOutEverySlotOnce) {
  const auto device = testing::make_naive_device();
  for (const std::int32_t page_size : {1, 3, 16, 64}) {
    KvPool pool(*device, layout_of(200 / page_size, page_size));
    const std::int32_t slots = pool.layout().slots();
    std::set<KvSlot> taken;
    std::mt19937 random(static_cast<std::uint32_t>(page_size));
    for (int round = 0; round < 20000; ++round) {
      if (random() % 2 == 0) {
        std::vector<KvSlot> some(random() % 24);
        const bool enough = some.size() + taken.size() <= static_cast<std::size_t>(slots);
        std::vector<std::int32_t> positions;
        for (std::size_t i = 0; i < some.size(); ++i) {
          positions.push_back(static_cast<std::int32_t>(
              positions.empty() ? random() % 100 : positions[0] + random() % 40));
        }
        const KvSlot open = random() % 2 == 0
                                ? no_slot
                                : static_cast<KvSlot>(random() % static_cast<unsigned>(slots));
        ASSERT_EQ(random() % 4 == 0 ? pool.take(some) : pool.take(some, positions, open), enough);
        for (const KvSlot slot : some) {
          if (!enough) break;
          ASSERT_TRUE(slot >= 0 && slot < slots);
          ASSERT_TRUE(taken.insert(slot).second) << slot;
        }
      } else {
        std::vector<KvSlot> some;
        std::ranges::sample(taken, std::back_inserter(some), random() % 24, random);
        pool.give_back(some);
        for (const KvSlot slot : some) taken.erase(slot);
      }
      ASSERT_EQ(pool.free_slots(), slots - static_cast<std::int32_t>(taken.size()));
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
