// A draft by table of paths, for tests of what policies grow from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "drafting/child_drawer.h"
#include "drafting/grow.h"

namespace coppice::testing {

using TokenPath = std::vector<TokenId>;

/// Tokens from the root's child to `node`.
inline TokenPath path_to(const TokenTree& tree, std::int32_t node) {
  TokenPath path;
  for (std::int32_t n = node; n > 0; n = tree.parent[static_cast<std::size_t>(n)]) {
    path.insert(path.begin(), tree.token[static_cast<std::size_t>(n)]);
  }
  return path;
}

/// All nodes' paths in node order, the root left out.
inline std::vector<TokenPath> paths_of(const TokenTree& tree) {
  std::vector<TokenPath> paths;
  for (std::int32_t node = 1; node < tree.nodes(); ++node) paths.push_back(path_to(tree, node));
  return paths;
}

/// A random distribution by path. Every fourth seed draws few weights, so that values tie; every
/// third one leaves tokens without mass.
inline std::vector<float> random_row(std::uint64_t seed, std::size_t vocab, const TokenPath& path) {
  std::uint64_t hash = seed;
  for (const TokenId token : path) hash = child_node_key(hash, token);
  std::mt19937_64 random(hash);
  std::vector<float> weights(vocab);
  for (float& weight : weights) {
    const auto draw = static_cast<float>(random() % 1000 + 1);
    weight = seed % 4 == 0 ? static_cast<float>(1 << (random() % 2)) : draw * draw;
    if (seed % 3 == 0 && random() % 3 == 0) weight = 0.0f;
  }
  weights[random() % vocab] = seed % 4 == 0 ? 2.0f : 3e5f;
  double sum = 0.0;
  for (const float weight : weights) sum += static_cast<double>(weight);
  for (float& weight : weights) weight = static_cast<float>(static_cast<double>(weight) / sum);
  return weights;
}

/// Serves D by path, and counts what a policy asks for.
class TableDraft final : public TextDraft {
 public:
  using Rows = std::function<std::vector<float>(const TokenPath& path)>;

  TableDraft(Rows rows, std::size_t vocab, const StepKey& key,
             AcceptanceRule draw = AcceptanceRule::rejection, std::int32_t cells = acceptance_cells)
      : rows_(std::move(rows)),
        noise_(static_cast<std::int64_t>(vocab)),
        drawer_(static_cast<std::int64_t>(vocab), noise_, {}, cells) {
    drawer_.begin(key, draw);
  }
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    ++passes;
    broken |= nodes.empty();
    for (const std::int32_t node : nodes) {
      const std::int32_t parent = candidates.parent[static_cast<std::size_t>(node)];
      broken |= !evaluated.insert(node).second || (node > 0 && !evaluated.contains(parent));
      live.insert(node);
      const std::vector<float> row = rows_(path_to(candidates, node));
      std::copy(row.begin(), row.end(), drawer_.prepare(node).begin());
      drawer_.ready(node);
    }
    most_live = std::max(most_live, live.size());
  }
  void forget(std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) live.erase(node);
  }
  void exclude(std::int32_t node, TokenId token) override { drawer_.exclude(node, token); }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override {
    auto drawn = drawer_.child(candidates, node, rank);
    draws += drawn ? 1 : 0;
    return drawn;
  }
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) override {
    return drawer_.belief_of(candidates, node, token);
  }
  double expected_share(std::int32_t node) override { return drawer_.expected_share(node); }

  std::int32_t passes = 0;
  std::int32_t draws = 0;     ///< children drawn
  std::size_t most_live = 0;  ///< nodes that hold draft KV, the root included
  bool broken = false;        ///< a node evaluated twice or before its parent, or an empty pass
  std::set<std::int32_t> evaluated, live;

 private:
  Rows rows_;
  NoiseCache noise_;
  ChildDrawer drawer_;
};

}  // namespace coppice::testing
