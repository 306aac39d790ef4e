#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "base/token_tree.h"

namespace coppice {
namespace {

TEST(TokenTreePart, LeavesNoGaps) {
  TokenTree whole;
  whole.reset(5);
  whole.add(0, 1, 0, 0.5f, 1.0);
  whole.add(0, 2, 1, 0.25f, 0.5, 0.75f, 0.125f);
  whole.add(0, 3, 2, 0.125f, 0.25);
  whole.add(3, 4, 0, 0.5f, 0.125);
  whole.add(2, 6, 0, 1.0f, 0.5);
  whole.candidate = {0, 10, 20, 30, 40, 50};
  TokenTree part;
  const std::vector<std::int32_t> nodes = {2, 5, 3, 4};
  for (int time = 0; time < 2; ++time) {
    part.assign_part(whole, nodes);
    part.validate(7);
    EXPECT_EQ(part.token, (std::vector<TokenId>{5, 2, 6, 3, 4}));
    EXPECT_EQ(part.parent, (std::vector<std::int32_t>{-1, 0, 1, 0, 3}));
    EXPECT_EQ(part.rank, (std::vector<std::int32_t>{0, 0, 0, 1, 0}));
    EXPECT_EQ(part.candidate, (std::vector<std::int32_t>{0, 20, 50, 30, 40}));
    EXPECT_EQ(part.draft_prob, (std::vector<float>{1.0f, 0.25f, 1.0f, 0.125f, 0.5f}));
    EXPECT_EQ(part.belief, (std::vector<float>{1.0f, 0.75f, 1.0f, 0.125f, 0.5f}));
    EXPECT_EQ(part.uniform[1], 0.125f);
    EXPECT_EQ(part.first_child, (std::vector<std::int32_t>{1, 2, -1, 4, -1}));
    EXPECT_EQ(part.next_sibling, (std::vector<std::int32_t>{-1, 3, -1, -1, -1}));
    EXPECT_EQ(part.child_with(0, 3), 3);
    EXPECT_EQ(part.child_with(0, 6), -1);
    EXPECT_EQ(part.key[3], child_node_key(root_node_key, 1));  // by its rank here
    EXPECT_EQ(part.value, (std::vector<double>{1.0, 0.5, 0.5, 0.25, 0.125}));
  }
  part.assign_part(whole, {});
  EXPECT_EQ(part.size(), 0);
  EXPECT_EQ(part.token[0], 5);
}

}  // namespace
}  // namespace coppice
