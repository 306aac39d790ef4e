#include "kernels/cuda/pass/tail_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/growing_texts.h"

namespace coppice {
namespace {

bool same(const VisibleKv& a, const VisibleKv& b) {
  return a.slot == b.slot && a.q_begin == b.q_begin && a.q_end == b.q_end &&
         a.position == b.position;
}

/// The device's side, which runs tokens in any order.
class Receiver {
 public:
  explicit Receiver(std::int32_t capacity) : table_(static_cast<std::size_t>(capacity), 1 << 30) {}

  std::vector<VisibleKv> expand(const TailParts& parts, std::vector<VisibleKv> list) {
    list.resize(static_cast<std::size_t>(parts.listed()));
    std::vector<std::pair<const TailPart*, std::int32_t>> tokens;
    for (const TailPart& part : parts.parts()) {
      for (std::int32_t at = part.begin; at < part.end; ++at) tokens.emplace_back(&part, at);
    }
    std::shuffle(tokens.begin(), tokens.end(), random_);
    std::vector<VisibleKv> tail(tokens.size(), VisibleKv{-7, -7, -7});
    for (const auto& [part, at] : tokens) {
      tail.at(static_cast<std::size_t>(at)) = part->token(at, table_.data(), list.data());
    }
    return tail;
  }

 private:
  std::vector<KvSlot> table_;
  std::mt19937 random_{3};
};

void expect_same(const std::vector<VisibleKv>& a, const std::vector<VisibleKv>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), same));
}

// With a table of the size that passes have, and with one that is always too small.
TEST(TailParts, BringWhateverHappensToTexts) {
  for (const std::int32_t share : {1, 12}) {
    testing::GrowingTexts texts(9, 300, static_cast<std::uint32_t>(share));
    constexpr std::int32_t most = 9 * 310;
    const std::int32_t capacity = TailParts::table_capacity(most) / share;
    TailParts parts(capacity);
    Receiver receiver(capacity);
    std::vector<VisibleKv> list(most);
    std::mt19937 random(5);
    std::int64_t tokens = 0, listed = 0;
    for (int step = 0; step < 3000; ++step) {
      texts.step();
      const std::vector<VisibleKv> all = texts.tokens();
      parts.divide(texts.segments(), list.data());
      ASSERT_LE(parts.parts().size(), static_cast<std::size_t>(TailParts::most_parts(most)));
      ASSERT_LE(static_cast<std::size_t>(parts.listed()), all.size());
      if (random() % 20 == 0) continue;  // the pass failed before anything was sent
      expect_same(receiver.expand(parts, list), all);
      parts.depart();
      tokens += static_cast<std::int64_t>(all.size());
      listed += parts.listed();
      if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "step " << step;
    }
    // A twelfth of the texts are new in every step, and as many lose a token in the middle.
    EXPECT_LT(share == 1 ? 3 * listed : listed, tokens);
  }
}

TEST(TailParts, SendWhatIsNew) {
  std::vector<std::vector<KvSlot>> slots(3);
  KvSlot next = 0;
  for (auto& of_text : slots) {
    for (int i = 0; i < 100; ++i) of_text.push_back(next++);
  }
  TailParts parts(TailParts::table_capacity(1000));
  std::vector<VisibleKv> list(1000);
  const auto listed = [&](bool departs = true) {
    std::vector<KvSegment> segments;
    std::int32_t row = 0;
    for (const auto& of_text : slots) segments.push_back({of_text, row++, row, true, 0});
    parts.divide(segments, list.data());
    if (departs) parts.depart();
    return parts.listed();
  };
  EXPECT_EQ(listed(), 300);
  EXPECT_EQ(listed(), 0);
  slots[1].push_back(next++);
  std::swap(slots[0], slots[2]);  // texts come in any order
  EXPECT_EQ(listed(), 1);
  slots[1].resize(60);
  EXPECT_EQ(listed(), 0);
  slots[1].push_back(next++);
  EXPECT_EQ(listed(), 1);
  slots[2][40] = no_slot;
  EXPECT_EQ(listed(), 60);
  slots[0].resize(TailParts::shortest - 1);
  EXPECT_EQ(listed(), TailParts::shortest - 1);
  // What did not depart is sent again, and all else.
  EXPECT_EQ(listed(false), TailParts::shortest - 1);
  EXPECT_EQ(listed(), TailParts::shortest - 1 + 61 + 100);
  EXPECT_EQ(listed(), TailParts::shortest - 1);
}

// A short run that texts share lies in front of each one's own tokens.
TEST(TailParts, TextsMayBeginAlike) {
  std::vector<std::vector<KvSlot>> slots(3);
  KvSlot next = 63;
  for (auto& of_text : slots) {
    for (KvSlot i = 0; i < 63; ++i) of_text.push_back(i);
    for (int i = 0; i < 40; ++i) of_text.push_back(next++);
  }
  TailParts parts(TailParts::table_capacity(1000));
  Receiver receiver(TailParts::table_capacity(1000));
  std::vector<VisibleKv> list(1000);
  for (const std::int32_t expected : {103 + 103 + 103, 0, 0}) {
    std::vector<KvSegment> segments;
    std::vector<VisibleKv> all;
    std::int32_t row = 0;
    for (const auto& of_text : slots) {
      segments.push_back({of_text, row, row + 1, true, 0});
      for (std::int32_t i = 0; i < 103; ++i) {
        all.push_back({of_text[static_cast<std::size_t>(i)], row, row + 1, i});
      }
      ++row;
    }
    parts.divide(segments, list.data());
    EXPECT_EQ(parts.listed(), expected);
    expect_same(receiver.expand(parts, list), all);
    parts.depart();
  }
}

// No two texts have the same slots; if a test's do, they do not share a place.
TEST(TailParts, EqualSegmentsAreBothRight) {
  std::vector<KvSlot> slots(50), other(50);
  for (KvSlot i = 0; i < 50; ++i) slots[static_cast<std::size_t>(i)] = i;
  for (KvSlot i = 1; i < 50; ++i) other[static_cast<std::size_t>(i)] = 100 + i;
  const std::vector<KvSegment> segments = {{slots, 0, 1, true, 0}, {other, 1, 2, true, 0}};
  TailParts parts(400);
  Receiver receiver(400);
  std::vector<VisibleKv> list(100), expected;
  for (const KvSegment& segment : segments) {
    std::int32_t position = segment.first_position;
    for (const KvSlot slot : segment.slots) {
      expected.push_back({slot, segment.q_begin, segment.q_end, position++});
    }
  }
  for (int pass = 0; pass < 3; ++pass) {
    parts.divide(segments, list.data());
    expect_same(receiver.expand(parts, list), expected);
    parts.depart();
  }
}

}  // namespace
}  // namespace coppice
