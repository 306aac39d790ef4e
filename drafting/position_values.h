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
/// not known. By size (drafting/valued_tree.h) values are held down to the parent's position's
/// value and the previous sibling's. So a value never increases towards later siblings and deeper
/// positions, and it is a function of the tokens, and of the numbers u that will judge them, of the
/// position's ancestors and of their and its own earlier siblings: D at a node, and so s, is a
/// function of the tokens that lead to it. That is what the proof in drafting/dyspec.cc asks for.
class PositionValues {
 public:
  /// `calibration` may be null: DySpec's values. It must outlive this and not change while a tree
  /// grows.
  explicit PositionValues(const AcceptanceCalibration* calibration) : calibration_(calibration) {}

  /// A tree of its root alone. `compares`: its positions are compared with proposals, which needs
  /// their expected shares.
  void reset(bool compares = false) {
    nodes_.assign(1, Node{});
    compares_ = compares;
  }
  /// Whether expected shares say anything here.
  bool asks_for_shares() const { return calibration_ != nullptr || compares_; }

  /// Returns the value of the next position under a node whose child is accepted with that chance.
  double value(std::int32_t parent, double chance) const {
    const auto i = static_cast<std::size_t>(parent);
    return nodes_[i].estimate * (nodes_[i].refused * chance);
  }
  /// Returns the chance that a child is accepted that is not drawn yet. `share`: the expected one,
  /// or below 0.
  double chance(std::int32_t rank, std::int32_t depth, double share) const {
    if (calibration_ == nullptr) return !compares_ || share < 0.0 ? 1.0 : share;
    return share < 0.0 ? calibration_->position(rank, depth) : calibration_->child(rank, share);
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

  /// A node was added; those before it have been. `believed`: what the draft believes of one that
  /// it did not draw, 0 where that is not known.
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

  double chance_of(std::int32_t parent, std::int32_t rank, float belief, float uniform) const {
    const auto i = static_cast<std::size_t>(parent);
    const auto mass = static_cast<double>(belief);
    const double left = 1.0 - nodes_[i].drawn;
    return calibration_->child(rank, left > mass ? mass / left : 1.0, static_cast<double>(uniform));
  }

  const AcceptanceCalibration* calibration_;
  bool compares_ = false;
  std::vector<Node> nodes_;
};

}  // namespace coppice
