// Which rows of a pass see which slots, against a dense mask of random prefix caches.
#include "models/kv/pass_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "reference/naive_device.h"
#include "reference/pass_faults.h"

namespace coppice::testing {
namespace {

class PassLayoutTest : public ::testing::Test {
 protected:
  struct Text {
    std::vector<TokenId> tokens;
    CacheRef ref;
    KvSlots own;
    std::int32_t rows;
  };

  // Begins with `tokens`, shares all of them, and has `own` of its own.
  void write(const std::vector<TokenId>& tokens, std::int32_t own, std::int32_t rows) {
    Text text{tokens, CacheRef(cache_), KvSlots(&target_), rows};
    text.ref.advance(tokens, static_cast<std::int32_t>(tokens.size()));
    KvSlots target(&target_), draft(nullptr);
    const auto known = static_cast<std::size_t>(text.ref.length());
    ASSERT_TRUE(target.take(static_cast<std::int32_t>(tokens.size() - known)));
    text.ref.append(std::span(tokens).subspan(known), target, draft);
    ASSERT_TRUE(text.own.take(own));
    texts_.push_back(std::move(text));
  }
  static std::vector<TokenId> run(TokenId token, std::size_t count) {
    return std::vector<TokenId>(count, token);
  }
  static std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  std::vector<KvSegment> segments() {
    layout_.begin(PassLayout::Of::target);
    for (const Text& text : texts_) {
      layout_.add(text.ref, text.own.all(), text.rows, text.ref.length());
    }
    layout_.arrange();
    std::vector<KvSegment> all;
    for (const std::int32_t text : layout_.order()) layout_.list_before(text, all);
    return all;
  }
  // Whether every row sees its text's slots, each at its position, and nothing else.
  bool are_right(std::span<const KvSegment> segments) {
    std::int32_t rows = 0;
    for (const Text& text : texts_) rows += text.rows;
    std::vector<std::map<KvSlot, std::int32_t>> seen(static_cast<std::size_t>(rows));
    for (const KvSegment& segment : segments) {
      if (!segment.former || segment.q_end > rows) return false;
      for (std::int32_t row = segment.q_begin; row < segment.q_end; ++row) {
        std::int32_t position = segment.first_position;
        for (const KvSlot slot : segment.slots) {
          if (!seen[static_cast<std::size_t>(row)].emplace(slot, position++).second) return false;
        }
      }
    }
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      const Text& text = texts_[t];
      std::vector<KvSlot> slots;
      text.ref.list_slots(true, slots);
      slots.insert(slots.end(), text.own.all().begin(), text.own.all().end());
      std::map<KvSlot, std::int32_t> wanted;
      for (const KvSlot slot : slots)
        wanted.emplace(slot, static_cast<std::int32_t>(wanted.size()));
      const std::int32_t first = layout_.first_row(static_cast<std::int32_t>(t));
      for (std::int32_t row = first; row < first + text.rows; ++row) {
        if (seen[static_cast<std::size_t>(row)] != wanted) return false;
      }
    }
    return true;
  }
  // Counts the texts, each once, and most that a pass may list of them.
  std::int64_t most_listed() {
    std::set<KvSlot> slots;
    for (const Text& text : texts_) {
      std::vector<KvSlot> of_text;
      text.ref.list_slots(true, of_text);
      slots.insert(of_text.begin(), of_text.end());
      slots.insert(text.own.all().begin(), text.own.all().end());
    }
    return PassLayout::most_listed(std::ssize(slots), static_cast<std::int32_t>(texts_.size()));
  }
  // Some texts of few tokens with long and short runs in common.
  void write_any(std::mt19937& random) {
    const auto below = [&](std::size_t end) { return random() % end; };
    texts_.clear();
    if (below(4) == 0) cache_.evict({16000, 0});
    const std::size_t count = 1 + below(8);
    for (std::size_t t = 0; t < count; ++t) {
      std::vector<TokenId> tokens;
      while (below(4) != 0) {
        tokens = joined(tokens, run(static_cast<TokenId>(below(2)), 10 + 10 * below(10)));
      }
      write(tokens, static_cast<std::int32_t>(below(5)), 1 + static_cast<std::int32_t>(below(4)));
    }
  }

  std::unique_ptr<Device> device_ = make_naive_device();
  KvPool target_{*device_,
                 {.layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 16, .pages = 1000}};
  PrefixCache cache_{target_, nullptr};
  std::vector<Text> texts_;
  PassLayout layout_;
};

TEST_F(PassLayoutTest, ATextAloneHasOneSegment) {
  write(run(1, 100), 0, 1);
  texts_.clear();
  write(joined(run(1, 40), run(2, 90)), 5, 3);
  cache_.validate();
  const auto all = segments();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].slots.size(), 135u);
  EXPECT_EQ(all[0].q_end, 3);
  EXPECT_TRUE(are_right(all));
}

TEST_F(PassLayoutTest, WhoSharesStandsSideBySide) {
  const auto a = run(1, 100), b = run(2, 100);
  write(a, 1, 2);
  write(b, 1, 3);
  write(joined(a, run(3, 70)), 1, 1);
  write(b, 1, 2);
  write(joined(a, run(3, 70)), 4, 1);
  const auto all = segments();
  EXPECT_EQ(std::vector<std::int32_t>(layout_.order().begin(), layout_.order().end()),
            (std::vector<std::int32_t>{0, 2, 4, 1, 3}));
  // a: 4 rows, of these two that go on with 70 tokens; b: 5.
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(layout_.tokens(), 100 + 70 + 100 + 8);
  EXPECT_EQ(layout_.tokens_by_text(), 3 * 100 + 2 * 70 + 2 * 100 + 8);
  EXPECT_EQ(all[0].q_begin, 0);
  EXPECT_EQ(all[0].q_end, 4);
  EXPECT_EQ(all[2].q_begin, 2);
  EXPECT_EQ(all[2].q_end, 4);
  EXPECT_EQ(all[2].first_position, 100);
  EXPECT_TRUE(are_right(all));
}

// One interval over all texts would cost more than it saves.
TEST_F(PassLayoutTest, AFewTokensAreListedForEach) {
  const auto few = run(7, 20);
  for (int t = 0; t < 3; ++t) write(joined(few, run(t, 30)), 2, 1);
  const auto all = segments();
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(layout_.tokens(), layout_.tokens_by_text());
  EXPECT_TRUE(are_right(all));
}

// RadixAttention's way, for comparison.
TEST_F(PassLayoutTest, TextByTextNothingIsListedOnce) {
  const auto shared = run(1, 300);
  for (int t = 0; t < 3; ++t) write(joined(shared, run(t, 70)), 2, 2);
  layout_.by_text = true;
  const auto all = segments();
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(layout_.tokens(), 3 * 372);
  EXPECT_EQ(layout_.tokens_by_text(), layout_.tokens());
  EXPECT_TRUE(are_right(all));
}

TEST_F(PassLayoutTest, RandomCaches) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    write_any(random);
    ASSERT_TRUE(are_right(segments())) << "round " << round;
    ASSERT_LE(layout_.tokens(), most_listed());
    ASSERT_LE(layout_.tokens(), layout_.tokens_by_text());
  }
}

// What the test above must notice.
TEST_F(PassLayoutTest, FaultsAreNoticed) {
  std::mt19937 random(4);
  int too_long = 0;
  for (int round = 0; round < 100; ++round) {
    write_any(random);
    std::vector<KvSegment> all = segments();
    std::vector<std::int32_t> first;
    for (const std::int32_t text : layout_.order()) first.push_back(layout_.first_row(text));
    first.push_back(all.back().q_end);
    lengthen_shared(all, first);
    too_long += are_right(all) ? 0 : 1;
  }
  EXPECT_GT(too_long, 10) << "an interval one row too long";

  texts_.clear();
  for (TokenId t = 0; t < 8; ++t) write(joined(run(9, 300), run(t, 70)), 2, 1);
  layout_.by_text = true;
  segments();
  EXPECT_GT(layout_.tokens(), most_listed()) << "what texts share, listed for each of them";
}

// A run of 64 tokens is read once, one of 63 for each text.
TEST_F(PassLayoutTest, ShortRunsAreListedForEach) {
  for (const std::int32_t shared : {63, 64}) {
    texts_.clear();
    cache_.evict({16000, 0});
    for (TokenId t = 0; t < 5; ++t) {
      write(joined(run(9, static_cast<std::size_t>(shared)), run(t, 70)), 2, 1);
    }
    segments();
    EXPECT_EQ(layout_.tokens(), 5 * 72 + (shared == 64 ? 1 : 5) * shared);
  }
}

}  // namespace
}  // namespace coppice::testing
