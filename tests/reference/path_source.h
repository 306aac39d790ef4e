// A draft by rule: D of a node is a function of the tokens that lead to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "drafting/child_drawer.h"

namespace coppice::testing {

/// Checks the rules of DraftSource::evaluate and counts what is asked.
class PathSource final : public DraftSource {
 public:
  /// `rule`: D at the node with this path of tokens, [vocab].
  using Rule = std::function<std::vector<float>(const std::vector<TokenId>& path)>;

  PathSource(Rule rule, std::int64_t vocab, const StepKey& key, ChildDraw draw = ChildDraw::sampled)
      : rule_(std::move(rule)), noise_(vocab), drawer_(vocab, noise_) {
    drawer_.begin(key, draw);
  }
  void evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) override {
    EXPECT_FALSE(nodes.empty());
    ++passes;
    for (const std::int32_t node : nodes) {
      EXPECT_TRUE(evaluated.insert(node).second) << "node " << node << " evaluated twice";
      std::vector<TokenId> path;
      for (std::int32_t at = node; at > 0; at = arena.parent[static_cast<std::size_t>(at)]) {
        path.insert(path.begin(), arena.token[static_cast<std::size_t>(at)]);
      }
      const std::vector<float> row = rule_(path);
      std::copy(row.begin(), row.end(), drawer_.prepare(node).begin());
      drawer_.ready(node);
    }
  }
  std::optional<DrawnChild> child(const TokenTree& arena, std::int32_t node,
                                  std::int32_t rank) override {
    auto drawn = drawer_.child(arena, node, rank);
    draws += drawn ? 1 : 0;
    return drawn;
  }

  std::int32_t passes = 0;
  std::int32_t draws = 0;  ///< children drawn
  std::set<std::int32_t> evaluated;

 private:
  Rule rule_;
  NoiseCache noise_;
  ChildDrawer drawer_;
};

}  // namespace coppice::testing
