// What a sampling position is worth while a tree grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/token_tree.h"
#include "drafting/calibration.h"

namespace coppice {

/// Values of positions by DySpec (eq. 11) or, with a calibration, by what it has learned. With
/// e(node) the estimate that a path is accepted up to the node, and r(node) that all children
/// drawn of it so far are refused once it is accepted:
///
///                          DySpec                     calibrated
///   e(child)               e(node) D(child)           e(node) r(node) child(rank, depth, share)
///   r(node)                1 - sum of children's D    product of 1 - child(...)
///   value of a position    e(node) r(node)            e(node) r(node) position(rank, depth)
///
/// the latter held down to its parent's position's value and its previous sibling's. So a value
/// never increases towards later siblings and deeper positions, and it is a function of the
/// tokens of the position's ancestors, of their earlier siblings and of its own, all of which
/// stand in positions of no smaller value. That is what the proof in drafting/dyspec.cc asks for.
///
/// `looks_ahead` is for where any tree is exact: a position's value may be lowered to its drawn
/// child's estimate, and before the draw it is bounded by e(node) r(node).
class PositionValues {
 public:
  /// `calibration` may be null: DySpec's values. It must outlive this and not change while a tree
  /// grows.
  PositionValues(const AcceptanceCalibration* calibration, bool looks_ahead)
      : calibration_(calibration), looks_ahead_(looks_ahead) {}

  /// A tree of its root alone.
  void reset() { nodes_.assign(1, {1.0, 1.0, 0.0}); }

  /// Of the first position under a node. The root's is 1, as DySpec has it, whatever was learned:
  /// every tree has a node, so that refusals cannot keep a threshold from ever trying again.
  double first_child(const TokenTree& tree, std::int32_t node) const {
    if (node == 0) return 1.0;
    const auto i = static_cast<std::size_t>(node);
    if (calibration_ == nullptr) return std::min(tree.path_prob[i], tree.value[i]);
    return std::min(nodes_[i].estimate * chance(0, tree.depth[i] + 1), tree.value[i]);
  }

  /// That an added node is accepted.
  double estimate(std::int32_t node) const {
    return nodes_[static_cast<std::size_t>(node)].estimate;
  }

  /// Estimate of a child that is drawn and not added: D `prob`, of the next rank.
  double child(const TokenTree& tree, std::int32_t parent, std::int32_t rank, float prob) const {
    const auto i = static_cast<std::size_t>(parent);
    if (calibration_ == nullptr) return tree.path_prob[i] * static_cast<double>(prob);
    return nodes_[i].estimate * nodes_[i].refused * chance_of(tree, parent, rank, prob);
  }

  /// The tree's last node was added: the child of its parent with the next rank.
  void added(const TokenTree& tree) {
    const auto n = tree.token.size() - 1;
    const std::int32_t parent = tree.parent[n];
    const float prob = tree.draft_prob[n];
    Node child_node{1.0, 1.0, 0.0};
    if (calibration_ != nullptr) {
      const double accepted = chance_of(tree, parent, tree.rank[n], prob);
      Node& above = nodes_[static_cast<std::size_t>(parent)];
      child_node.estimate = above.estimate * above.refused * accepted;
      above.refused *= 1.0 - accepted;
    }
    nodes_[static_cast<std::size_t>(parent)].drawn += static_cast<double>(prob);
    nodes_.push_back(child_node);
  }

  /// Of the position of this rank under `parent`, the next one; `value` is the previous one's.
  double next_sibling(const TokenTree& tree, std::int32_t parent, std::int32_t rank,
                      double value) const {
    const auto i = static_cast<std::size_t>(parent);
    if (calibration_ == nullptr) {
      return std::min(value, tree.path_prob[i] * std::max(0.0, 1.0 - nodes_[i].drawn));
    }
    return std::min(value,
                    nodes_[i].estimate * nodes_[i].refused * chance(rank, tree.depth[i] + 1));
  }

  bool looks_ahead() const { return looks_ahead_; }

 private:
  struct Node {
    double estimate;  // that it is accepted
    double refused;   // that all its children so far are, once it is accepted
    double drawn;     // D of its children so far
  };

  double chance(std::int32_t rank, std::int32_t depth) const {
    return looks_ahead_ ? 1.0 : calibration_->position(rank, depth);
  }

  double chance_of(const TokenTree& tree, std::int32_t parent, std::int32_t rank,
                   float prob) const {
    const auto i = static_cast<std::size_t>(parent);
    const auto mass = static_cast<double>(prob);
    const double left = 1.0 - nodes_[i].drawn;
    return calibration_->child(rank, tree.depth[i] + 1, left > mass ? mass / left : 1.0);
  }

  const AcceptanceCalibration* calibration_;
  bool looks_ahead_;
  std::vector<Node> nodes_;
};

}  // namespace coppice
