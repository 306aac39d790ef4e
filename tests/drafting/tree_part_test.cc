#include "drafting/tree_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

TEST(TreePart, LeavesNoGaps) {
  TokenTree whole;
  whole.reset(5);
  whole.add(0, 1, 0, 0.5f, 1.0);
  whole.add(0, 2, 1, 0.25f, 0.5, 0.75f, 0.125f);
  whole.add(0, 3, 2, 0.125f, 0.25);
  whole.add(3, 4, 0, 0.5f, 0.125);
  whole.add(2, 6, 0, 1.0f, 0.5);
  whole.candidate = {0, 10, 20, 30, 40, 50};
  TreePart copier;
  TokenTree part;
  const std::vector<std::int32_t> nodes = {2, 5, 3, 4};
  for (int time = 0; time < 2; ++time) {
    copier.copy(whole, nodes, part);
    part.validate(7);
    EXPECT_EQ(part.token, (std::vector<TokenId>{5, 2, 6, 3, 4}));
    EXPECT_EQ(part.parent, (std::vector<std::int32_t>{-1, 0, 1, 0, 3}));
    EXPECT_EQ(part.rank, (std::vector<std::int32_t>{0, 0, 0, 1, 0}));
    EXPECT_EQ(part.candidate, (std::vector<std::int32_t>{0, 20, 50, 30, 40}));
    EXPECT_EQ(part.draft_prob, (std::vector<float>{1.0f, 0.25f, 1.0f, 0.125f, 0.5f}));
    EXPECT_EQ(part.belief, (std::vector<float>{1.0f, 0.75f, 1.0f, 0.125f, 0.5f}));
    EXPECT_EQ(part.uniform[1], 0.125f);
    EXPECT_EQ(part.value, (std::vector<double>{1.0, 0.5, 0.5, 0.25, 0.125}));
  }
  copier.copy(whole, {}, part);
  EXPECT_EQ(part.size(), 0);
  EXPECT_EQ(part.token[0], 5);
}

}  // namespace
}  // namespace coppice
