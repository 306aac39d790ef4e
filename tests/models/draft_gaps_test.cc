#include "models/draft_gaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "reference/naive_device.h"

namespace coppice::testing {
namespace {

class DraftGapsTest : public ::testing::Test {
 protected:
  // A text all of whose tokens but the last are in the tree, of which the draft has KV of the first
  // `drafted`, if their path had no more.
  SequenceState text(std::vector<TokenId> tokens, std::int32_t drafted = 0) {
    tokens.push_back(99);
    SequenceState state(100, cache_);
    for (const TokenId token : tokens) state.append(token);
    const std::int32_t all = state.length() - 1;
    state.base.advance(state.tokens, all);
    EXPECT_TRUE(state.target_slots.take(all - state.base.length()));
    state.share(all);
    EXPECT_EQ(state.base.length(), all);
    const std::int32_t known = state.base.draft_length();
    KvSlots fresh(&draft_);
    EXPECT_TRUE(fresh.take(std::max(0, drafted - known)));
    state.base.fill_draft(fresh, known, fresh.size());
    return state;
  }
  static std::vector<TokenId> joined(std::vector<TokenId> a, std::size_t count, TokenId token) {
    a.insert(a.end(), count, token);
    return a;
  }
  static std::int32_t add(DraftGaps& gaps, const SequenceState& state) {
    return gaps.add(state, state.length() - 1);
  }
  static double share(const DraftGaps& gaps, const SequenceState& state) {
    return gaps.share(state, state.length() - 1);
  }

  std::unique_ptr<Device> device_ = make_naive_device();
  const KvLayout layout_ = {
      .layers = 1, .kv_heads = 1, .head_dim = 4, .page_size = 16, .pages = 100};
  KvPool target_{*device_, layout_}, draft_{*device_, layout_};
  PrefixCache cache_{target_, &draft_};
};

TEST_F(DraftGapsTest, CountWhatIsSharedOnce) {
  const std::vector<TokenId> all = joined({}, 60, 1), some = joined(all, 30, 2);
  const SequenceState a = text(joined(some, 8, 3), 20), b = text(joined(some, 5, 4)),
                      c = text(joined(all, 6, 5)), d = text(all);
  DraftGaps gaps;
  EXPECT_EQ(add(gaps, a), 40 + 30 + 8) << "20 of them are there";
  EXPECT_EQ(add(gaps, b), 5) << "and what lies above is a's";
  EXPECT_EQ(add(gaps, c), 6);
  EXPECT_EQ(add(gaps, d), 0);
  EXPECT_DOUBLE_EQ(share(gaps, a), 40 / 4.0 + 30 / 2.0 + 8);
  EXPECT_DOUBLE_EQ(share(gaps, b), 40 / 4.0 + 30 / 2.0 + 5);
  EXPECT_DOUBLE_EQ(share(gaps, c), 40 / 4.0 + 6);
  EXPECT_DOUBLE_EQ(share(gaps, d), 40 / 4.0);
  gaps.clear();
  EXPECT_EQ(add(gaps, d), 40) << "anew";
  EXPECT_DOUBLE_EQ(share(gaps, d), 40.0);
}

TEST_F(DraftGapsTest, StayWhenATextForksBelow) {
  const std::vector<TokenId> all = joined({}, 60, 1);
  const SequenceState a = text(joined(all, 20, 2)), b = text(joined(all, 20, 2));
  DraftGaps gaps;
  EXPECT_EQ(add(gaps, a) + add(gaps, b), 80);
  const SequenceState c = text(joined(joined({}, 30, 1), 10, 3));  // cuts the others' node in two
  EXPECT_DOUBLE_EQ(share(gaps, a), 40.0);
  EXPECT_DOUBLE_EQ(share(gaps, b), 40.0);
}

// A text that goes without what the tree lacks, and one that has tokens of its own.
TEST_F(DraftGapsTest, HaveATextsOwn) {
  const std::vector<TokenId> all = joined({}, 60, 1);
  SequenceState skips = text(all), goes_on = text(all);
  skips.skip_draft(40);
  for (int i = 0; i < 7; ++i) goes_on.append(5);
  DraftGaps gaps;
  EXPECT_EQ(add(gaps, skips), 20);
  EXPECT_EQ(add(gaps, goes_on), 60 + 7);
  EXPECT_DOUBLE_EQ(share(gaps, skips), 20.0);
  EXPECT_DOUBLE_EQ(share(gaps, goes_on), 60.0 + 7.0);

  SequenceState alone(100, target_, &draft_);
  for (int i = 0; i < 9; ++i) alone.append(5);
  EXPECT_EQ(add(gaps, alone), 8) << "in no tree";
}

}  // namespace
}  // namespace coppice::testing
