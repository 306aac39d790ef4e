// Who owns which slot: whatever is done with them, every slot is free or owned once.
#include "models/kv/kv_slots.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "models/sequence_state.h"
#include "reference/naive_device.h"

namespace coppice {
namespace {

class KvSlotsTest : public ::testing::Test {
 protected:
  static constexpr std::int32_t slots = 50;
  std::unique_ptr<Device> device_ = testing::make_naive_device();
  KvPool pool_{*device_, {.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 5, .pages = 10}};
};

TEST_F(KvSlotsTest, EverySlotHasOneOwnerOrIsFree) {
  std::mt19937 random(7);
  std::vector<KvSlots> texts;
  const auto below = [&](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n));
  };
  for (int round = 0; round < 20000; ++round) {
    if (texts.size() < 4) texts.emplace_back(&pool_);
    KvSlots& text = texts[static_cast<std::size_t>(below(static_cast<std::int32_t>(texts.size())))];
    KvSlots& other = texts.front();
    switch (below(6)) {
      case 0: {
        const std::int32_t count = below(20), before = text.size(), free = pool_.free_slots();
        ASSERT_EQ(text.take(count), count <= free);
        ASSERT_EQ(text.size(), before + (count <= free ? count : 0));
        break;
      }
      case 1:
        text.skip_to(text.size() + below(3));
        break;
      case 2:
        if (&other != &text && other.size() > 0) {
          const std::int32_t index = below(other.size());
          const KvSlot slot = other.all()[static_cast<std::size_t>(index)];
          text.keep(other, index);
          ASSERT_EQ(text.all().back(), slot);
          ASSERT_EQ(other.all()[static_cast<std::size_t>(index)], no_slot);
        }
        break;
      case 3:
        for (std::int32_t i = 0; i < text.size(); ++i) {
          if (text.all()[static_cast<std::size_t>(i)] == no_slot || below(2) == 0) continue;
          text.give_back(i);
          ASSERT_EQ(text.all()[static_cast<std::size_t>(i)], no_slot);
        }
        break;
      case 4: {
        const std::int32_t size = below(text.size() + 2), before = text.size();
        text.cut(size);
        ASSERT_EQ(text.size(), std::min(size, before));
        break;
      }
      default:
        texts.pop_back();
    }
    std::set<KvSlot> owned;
    for (const KvSlots& each : texts) {
      for (const KvSlot slot : each.all()) {
        if (slot != no_slot) {
          ASSERT_TRUE(owned.insert(slot).second) << slot;
        }
      }
    }
    ASSERT_EQ(pool_.free_slots(), slots - static_cast<std::int32_t>(owned.size()));
  }
  texts.clear();
  EXPECT_EQ(pool_.free_slots(), slots);
}

TEST_F(KvSlotsTest, MovingMovesTheOwner) {
  KvSlots first(&pool_);
  ASSERT_TRUE(first.take(3));
  {
    const KvSlots second(std::move(first));
    EXPECT_EQ(second.size(), 3);
    EXPECT_EQ(pool_.free_slots(), slots - 3);
  }
  EXPECT_EQ(pool_.free_slots(), slots);
}

TEST_F(KvSlotsTest, WithoutAPoolThereIsNothingToTake) {
  KvSlots none;
  EXPECT_FALSE(none.take(1));
  none.skip_to(4);
  EXPECT_EQ(none.size(), 4);
}

TEST_F(KvSlotsTest, WhatGrewIsCutBackHoweverItsScopeEnds) {
  KvSlots text(&pool_);
  ASSERT_TRUE(text.take(5));
  const auto grow = [&](bool fails) {
    CutBack computed{text, text.size()};
    ASSERT_TRUE(text.take(7));
    if (fails) throw std::runtime_error("lost");
    computed.length = text.size();
  };
  EXPECT_THROW(grow(true), std::runtime_error);
  EXPECT_EQ(text.size(), 5);
  EXPECT_EQ(pool_.free_slots(), slots - 5);
  grow(false);
  EXPECT_EQ(text.size(), 12);
}

TEST_F(KvSlotsTest, ATextKeepsTheKvBeforeItsLastToken) {
  {
    SequenceState text(10, pool_, &pool_);
    for (TokenId token = 0; token < 8; ++token) text.append(token);
    ASSERT_TRUE(text.target_slots.take(7));
    ASSERT_TRUE(text.draft_slots.take(8));
    text.cut(8);
    EXPECT_EQ(text.target_slots.size(), 7);
    EXPECT_EQ(text.draft_slots.size(), 7);
    text.cut(3);
    EXPECT_EQ(text.length(), 3);
    EXPECT_EQ(text.largest_token, 2);
    EXPECT_FALSE(text.counts.contains(3));
    EXPECT_EQ(pool_.free_slots(), slots - 4);
  }
  EXPECT_EQ(pool_.free_slots(), slots);
}

TEST_F(KvSlotsTest, TextsEndOnAnyThread) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        KvSlots text(&pool_);
        EXPECT_TRUE(text.take(12));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool_.free_slots(), slots);
}

}  // namespace
}  // namespace coppice
