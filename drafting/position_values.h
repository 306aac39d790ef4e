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
///   e(child)               e(node) D(child)           e(node) r(node) child(rank, share, u)
///   e(proposed child)      e(node) r(node) chance     the same
///   r(node)                1 - sum of children's D    product of 1 - child(...)
///   value of a position    e(node) r(node)            e(node) r(node) child(rank, s)
///
/// share leaves out what the draft believes of proposed children, where it was asked.
/// DySpec's value of a position beside proposals is e(node) r(node) s: else none would come first.
/// Here s is the share that the position's child is expected to have
/// (DraftSource::expected_share), or position(rank, depth) in place of child(rank, s) where s is
/// not known. Values are held down to the parent's position's value and the previous sibling's. So
/// a value never increases towards later siblings and deeper positions, and it is a function of the
/// tokens, and of the numbers u that will judge them, of the position's ancestors and of their and
/// its own earlier siblings: D at a node, and so s, is a function of the tokens that lead to it.
/// That is what the proof in drafting/dyspec.cc asks for.
///
/// `looks_ahead` is for where any tree is exact: a position's value may be lowered to its drawn
/// child's estimate, and before the draw it is bounded by e(node) r(node).
class PositionValues {
 public:
  /// `calibration` may be null: DySpec's values. It must outlive this and not change while a tree
  /// grows.
  PositionValues(const AcceptanceCalibration* calibration, bool looks_ahead)
      : calibration_(calibration), looks_ahead_(looks_ahead) {}

  /// A tree of its root alone. `compares`: its positions are compared with proposals, which needs
  /// their expected shares.
  void reset(bool compares = false) {
    nodes_.assign(1, Node{});
    compares_ = compares;
  }
  /// Whether expected shares say anything here, and whether the source of this tree knows them:
  /// values of positions may then be as large as those of children that are certain to the draft.
  bool asks_for_shares() const { return (calibration_ != nullptr || compares_) && !looks_ahead_; }
  void know_shares(bool known) { shares_known_ = known; }

  /// Bounds the value of the first position under a node, before the node is evaluated. The root's
  /// is 1, as DySpec has it, whatever was learned: every tree has a node, so that refusals cannot
  /// keep a threshold from ever trying again.
  double most_of_first_child(const TokenTree& tree, std::int32_t node) const {
    return first_child(tree, node, shares_known_ ? 1.0 : -1.0);
  }
  /// Returns the value of the first position under an evaluated node. `share`: the expected one, or
  /// below 0.
  double first_child(const TokenTree& tree, std::int32_t node, double share) const {
    if (node == 0) return 1.0;
    const auto i = static_cast<std::size_t>(node);
    return std::min(nodes_[i].estimate * chance_before(0, tree.depth[i] + 1, share), tree.value[i]);
  }

  /// The same of the root, as it is: to be compared with what is proposed there.
  double first_of_root(const TokenTree& tree, double share) const {
    return chance_before(0, tree.depth[0] + 1, share);
  }

  /// Estimate of a child that is drawn and not added, of the next rank.
  double child(std::int32_t parent, std::int32_t rank, const DrawnChild& drawn) const {
    const auto i = static_cast<std::size_t>(parent);
    if (calibration_ == nullptr) {
      return nodes_[i].estimate * nodes_[i].certain_refused * static_cast<double>(drawn.prob);
    }
    return nodes_[i].estimate * nodes_[i].refused *
           chance_of(parent, rank, drawn.belief < 0.0f ? drawn.prob : drawn.belief, drawn.uniform);
  }

  /// The tree's last node was added: the child of its parent with the next rank.
  void added(const TokenTree& tree) { added(tree, tree.size()); }
  /// The same of a node of a larger tree; those before it have been added. `believed`: what the
  /// draft believes of one that it did not draw, 0 where that is not known.
  void added(const TokenTree& tree, std::int32_t node, double believed = 0.0) {
    const auto n = static_cast<std::size_t>(node);
    const std::int32_t parent = tree.parent[n];
    Node& above = nodes_[static_cast<std::size_t>(parent)];
    double estimate = 0.0;
    if (tree.is_certain(node)) {
      const auto accepted = static_cast<double>(tree.belief[n]);
      estimate = above.estimate * above.refused * accepted;
      above.refused *= 1.0 - accepted;
      above.certain_refused *= 1.0 - accepted;
      if (calibration_ != nullptr) above.drawn += believed;
      ++above.certain;
    } else if (calibration_ == nullptr) {
      const auto prob = static_cast<double>(tree.draft_prob[n]);
      estimate = above.estimate * above.certain_refused * prob;
      above.drawn += prob;
      above.refused = above.certain_refused * std::max(0.0, 1.0 - above.drawn);
    } else {
      const double accepted =
          chance_of(parent, tree.rank[n] - above.certain, tree.belief[n], tree.uniform[n]);
      estimate = above.estimate * above.refused * accepted;
      above.drawn += static_cast<double>(tree.belief[n]);
      above.refused *= 1.0 - accepted;
    }
    Node added;
    added.estimate = estimate;
    nodes_.push_back(added);
  }
  /// Estimate of a proposed child of this chance.
  double certain(std::int32_t parent, double chance) const { return reach(parent) * chance; }
  /// Children of a node that no distribution proposed.
  std::int32_t certain_children(std::int32_t node) const {
    return nodes_[static_cast<std::size_t>(node)].certain;
  }

  /// Returns the value of the next position under `parent`, of this rank; `value` is the previous
  /// one's.
  double next_sibling(const TokenTree& tree, std::int32_t parent, std::int32_t rank, double value,
                      double share) const {
    const auto i = static_cast<std::size_t>(parent);
    const double chance = chance_before(rank, tree.depth[i] + 1, share);
    return std::min(value, nodes_[i].estimate * (nodes_[i].refused * chance));
  }

  bool looks_ahead() const { return looks_ahead_; }
  /// That a node is accepted.
  double estimate(std::int32_t node) const {
    return nodes_[static_cast<std::size_t>(node)].estimate;
  }
  /// That a node is accepted and all children drawn of it so far are not.
  double reach(std::int32_t node) const {
    const auto i = static_cast<std::size_t>(node);
    return nodes_[i].estimate * nodes_[i].refused;
  }

 private:
  struct Node {
    double estimate = 1.0;         // that it is accepted
    double refused = 1.0;          // that all its children so far are, once it is accepted
    double drawn = 0.0;            // D, or belief, of its children so far
    double certain_refused = 1.0;  // that those from no distribution are
    std::int32_t certain = 0;      // their number
  };

  /// Returns the chance that a child is accepted that is not drawn yet.
  double chance_before(std::int32_t rank, std::int32_t depth, double share) const {
    if (!asks_for_shares()) return 1.0;
    if (calibration_ == nullptr) return share < 0.0 ? 1.0 : share;
    return share < 0.0 ? calibration_->position(rank, depth) : calibration_->child(rank, share);
  }

  double chance_of(std::int32_t parent, std::int32_t rank, float belief, float uniform) const {
    const auto i = static_cast<std::size_t>(parent);
    const auto mass = static_cast<double>(belief);
    const double left = 1.0 - nodes_[i].drawn;
    return calibration_->child(rank, left > mass ? mass / left : 1.0, static_cast<double>(uniform));
  }

  const AcceptanceCalibration* calibration_;
  bool looks_ahead_;
  bool shares_known_ = false, compares_ = false;
  std::vector<Node> nodes_;
};

}  // namespace coppice
