#include "kernels/cuda/pass/recently_used.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace coppice {
namespace {

TEST(RecentlyUsed, WhatWasNotUsedForLongestGoes) {
  RecentlyUsed<int, std::string> map(3);
  for (const int key : {1, 2, 3}) map.add(key, std::to_string(key));
  EXPECT_TRUE(map.full());
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(*map.find(1), "1");
  map.add(4, "4");
  EXPECT_EQ(map.find(2), nullptr);
  for (const int key : {1, 3, 4}) EXPECT_NE(map.find(key), nullptr) << key;
  EXPECT_EQ(map.size(), 3u);
}

// Against a list in the order of use; whatever has gone was destroyed.
TEST(RecentlyUsed, RandomOperations) {
  std::mt19937 random(5);
  for (const std::size_t most : {1u, 2u, 7u}) {
    RecentlyUsed<unsigned, std::shared_ptr<unsigned>> map(most);
    std::vector<std::pair<unsigned, std::weak_ptr<unsigned>>> used;  // last used last
    for (int i = 0; i < 2000; ++i) {
      const unsigned key = random() % 12;
      const auto at = std::find_if(used.begin(), used.end(),
                                   [&](const auto& entry) { return entry.first == key; });
      const std::shared_ptr<unsigned>* const found = map.find(key);
      ASSERT_EQ(found != nullptr, at != used.end());
      if (found != nullptr) {
        ASSERT_EQ(*found, at->second.lock());
        std::rotate(at, at + 1, used.end());
        continue;
      }
      auto value = std::make_shared<unsigned>(key);
      std::weak_ptr<unsigned> gone;
      if (used.size() == most) {
        gone = used.front().second;
        ASSERT_FALSE(gone.expired());
        used.erase(used.begin());
      }
      used.emplace_back(key, value);
      map.add(key, std::move(value));
      ASSERT_TRUE(gone.expired());
      ASSERT_EQ(map.size(), used.size());
    }
  }
}

}  // namespace
}  // namespace coppice
