// A tree that grows by the values of its positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drafting/grower.h"
#include "drafting/lookahead.h"
#include "drafting/policy.h"
#include "drafting/position_values.h"

namespace coppice {

/// Knows what a tree's open positions are worth, and fills those that its grower chooses: its own,
/// or, by costs, the one that it shares (GrowthLimits::common).
///
/// By size, a node has one open position at a time, proposed or drawn, whichever is worth more, and
/// its value bounds those of later siblings and of descendants. By costs, it has one of either
/// kind. Where any tree is exact (drafting/any_tree.h) a child is drawn and looked at before it is
/// added: by costs that of every evaluated node, by size that of the best one.
class ValuedTree final : public DraftPolicy {
 public:
  /// `last_rank` of a drawn child among drawn siblings; 0: a chain. `own`: the grower by `rule`.
  ValuedTree(const char* name, const DyspecRule& rule, std::int32_t last_rank,
             std::unique_ptr<Grower> own)
      : name_(name),
        rule_(rule),
        last_rank_(last_rank),
        own_(std::move(own)),
        values_(rule.calibration) {}
  std::string name() const override { return name_; }
  std::optional<GrowthPrior> prior(const GrowthLimits& limits) const override {
    if (!is_by_costs()) return std::nullopt;
    return GrowthPrior{rule_.calibration, limits.max_size, limits.max_depth,
                       last_rank_,        limits.weight,   limits.drafts};
  }

  void begin(const GrowthLimits& limits, TokenId root) override;
  void propose(DraftSource& source) override;
  void take(DraftSource& source) override;
  void finish(TokenTree& tree) override;

  // What a Grower reads and grows:

  /// Between begin() and finish(), once the root is evaluated or something was proposed; not after
  /// this has failed.
  bool grows() const { return source_ != nullptr; }
  bool has_room() const { return candidates_.size() < limits_.max_size; }
  bool looks() const { return rule_.any_tree; }
  /// A drawn token stays, so that its sibling is better drawn once more is known.
  bool siblings_wait() const { return is_by_costs() && !looks(); }
  const GrowthLimits& limits() const { return limits_; }
  const AcceptanceCalibration& calibration() const { return *rule_.calibration; }
  const TokenTree& candidates() const { return candidates_; }
  std::int32_t children(std::int32_t node) const {
    return at(node).drawn.rank + values_.certain_children(node);
  }
  /// The position of a node's next child that is drawn, or proposed (value 0: there is none). By
  /// size drawn() has the one that is worth more.
  const OpenPosition& drawn(std::int32_t node) const { return at(node).drawn; }
  const OpenPosition& proposed(std::int32_t node) const { return at(node).proposed; }
  double value(std::int32_t node, bool proposal) const {
    return proposal ? proposed(node).value : drawn(node).value;
  }
  /// Returns the value once the drawn child has been looked at, where that may be.
  double look(std::int32_t node, bool proposal);
  /// Adds a node's next child. False: the draft has none.
  bool add(std::int32_t parent, bool proposal) { return add(parent, proposal, *source_); }
  /// Has the next pass evaluate a node, with those above it that are not.
  void want(std::int32_t node);
  /// These candidates, and those below them, will not be in the tree.
  void forget(std::span<const std::int32_t> nodes) { source_->forget(nodes); }

 private:
  /// What is known of a node's next children.
  struct Place {
    /// Of its next child that is drawn; by size of its next child, which is the proposed one if
    /// `certain` (choose_one()).
    OpenPosition drawn;
    OpenPosition proposed;           ///< by costs, of its next child that is proposed
    std::optional<DrawnChild> seen;  ///< the drawn one, where it was looked at
    bool looked = false;             ///< whether it is to be: by costs always
    TokenId proposal = -1;           ///< the proposed one
    double chance = 0.0;             ///< of that
    double heard = 0.0;              ///< what the draft believes of it; 0: not known
    double believed = 0.0;           ///< the same of the node itself
  };
  bool is_by_costs() const { return rule_.economics != nullptr; }
  Grower& grower() { return is_by_costs() && limits_.common != nullptr ? *limits_.common : *own_; }
  Place& at(std::int32_t node) { return places_[static_cast<std::size_t>(node)]; }
  const Place& at(std::int32_t node) const { return places_[static_cast<std::size_t>(node)]; }
  void grow(DraftSource& source);
  void revalue(std::int32_t node, DraftSource& source);
  double value_before_draw(std::int32_t node, DraftSource& source);
  void revalue_proposal(std::int32_t node, DraftSource& source);
  void choose_one(std::int32_t node);
  bool hear(std::int32_t node, DraftSource& source);
  void revalue_all(DraftSource& source);
  bool add(std::int32_t parent, bool proposal, DraftSource& source);

  const char* name_;
  DyspecRule rule_;
  std::int32_t last_rank_;
  std::unique_ptr<Grower> own_;
  PositionValues values_;
  bool shares_known_ = false;  ///< of the draft's next children
  std::vector<Place> places_;  ///< by node
  std::vector<std::int32_t> kept_;
  DraftSource* source_ = nullptr;  ///< null: nothing grows (grows())
};

}  // namespace coppice
