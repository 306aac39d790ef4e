// What a sampling position is worth while a tree grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/draft_source.h"

namespace coppice {

/// Values of positions by DySpec (eq. 11) or, with a calibration, by what it has learned. With
/// e(node) the estimate that a path is accepted up to the node, r(node) that all children drawn of
/// it so far are refused once it is accepted, share its part of the belief (base/token_tree.h: D,
/// where the noise is not known) that its earlier siblings have left, and u the number that will
/// judge it, where there is one:
///
///                          DySpec                     calibrated
///   e(child)               e(node) D(child)           e(node) r(node) child(rank, depth, share, u)
///   r(node)                1 - sum of children's D    product of 1 - child(...)
///   value of a position    e(node) r(node)            e(node) r(node) position(rank, depth)
///
/// held down to its parent's position's value and its previous sibling's. So a value never
/// increases towards later siblings and deeper positions, and it is a function of the tokens, and
/// of the numbers u that will judge them, of the position's ancestors and of their and its own
/// earlier siblings. That is what the proof in drafting/dyspec.cc asks for.
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
    return std::min(nodes_[i].estimate * bound(0, tree.depth[i] + 1), tree.value[i]);
  }

  /// That a node's first child is accepted, as far as is known before it is drawn. Needs a
  /// calibration.
  double expected_first_child(const TokenTree& tree, std::int32_t node) const {
    const auto i = static_cast<std::size_t>(node);
    return nodes_[i].estimate * calibration_->position(0, tree.depth[i] + 1);
  }

  /// Estimate of a child that is drawn and not added, of the next rank.
  double child(const TokenTree& tree, std::int32_t parent, std::int32_t rank,
               const DrawnChild& drawn) const {
    const auto i = static_cast<std::size_t>(parent);
    if (calibration_ == nullptr) return nodes_[i].estimate * static_cast<double>(drawn.prob);
    return nodes_[i].estimate * nodes_[i].refused *
           chance_of(tree, parent, rank, drawn.belief < 0.0f ? drawn.prob : drawn.belief,
                     drawn.uniform);
  }

  /// The tree's last node was added: the child of its parent with the next rank.
  void added(const TokenTree& tree) {
    const auto n = tree.token.size() - 1;
    const std::int32_t parent = tree.parent[n];
    Node& above = nodes_[static_cast<std::size_t>(parent)];
    double estimate = 0.0;
    if (calibration_ == nullptr) {
      const auto prob = static_cast<double>(tree.draft_prob[n]);
      estimate = above.estimate * prob;
      above.drawn += prob;
      above.refused = std::max(0.0, 1.0 - above.drawn);
    } else {
      const double accepted =
          chance_of(tree, parent, tree.rank[n], tree.belief[n], tree.uniform[n]);
      estimate = above.estimate * above.refused * accepted;
      above.drawn += static_cast<double>(tree.belief[n]);
      above.refused *= 1.0 - accepted;
    }
    nodes_.push_back({estimate, 1.0, 0.0});
  }

  /// Of the position of this rank under `parent`, the next one; `value` is the previous one's.
  double next_sibling(const TokenTree& tree, std::int32_t parent, std::int32_t rank,
                      double value) const {
    const auto i = static_cast<std::size_t>(parent);
    return std::min(value,
                    nodes_[i].estimate * (nodes_[i].refused * bound(rank, tree.depth[i] + 1)));
  }

  bool looks_ahead() const { return looks_ahead_; }

 private:
  struct Node {
    double estimate;  // that it is accepted
    double refused;   // that all its children so far are, once it is accepted
    double drawn;     // D, or belief, of its children so far
  };

  double bound(std::int32_t rank, std::int32_t depth) const {
    return looks_ahead_ || calibration_ == nullptr ? 1.0 : calibration_->position(rank, depth);
  }

  double chance_of(const TokenTree& tree, std::int32_t parent, std::int32_t rank, float belief,
                   float uniform) const {
    const auto i = static_cast<std::size_t>(parent);
    const auto mass = static_cast<double>(belief);
    const double left = 1.0 - nodes_[i].drawn;
    return calibration_->child(rank, tree.depth[i] + 1, left > mass ? mass / left : 1.0,
                               static_cast<double>(uniform));
  }

  const AcceptanceCalibration* calibration_;
  bool looks_ahead_;
  std::vector<Node> nodes_;
};

}  // namespace coppice
