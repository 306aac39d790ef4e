// A tree where sizes follow costs and what is drawn stays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drafting/batch_growth.h"
#include "drafting/policy.h"
#include "drafting/position_values.h"

namespace coppice {

/// DySpec, or a chain, by costs: one of the trees of a BatchGrowth (GrowthLimits::common), else by
/// itself at the rule's own prices. Where any tree is exact (drafting/any_tree.h) it looks at the
/// next child of every evaluated node before it takes it, else it takes what it draws.
class CostDrivenDyspec final : public DraftPolicy {
 public:
  /// `rule` has a calibration and economics. `last_rank` of a child among its siblings; 0: a chain.
  CostDrivenDyspec(const char* name, const DyspecRule& rule, std::int32_t last_rank)
      : name_(name),
        calibration_(*rule.calibration),
        looks_(rule.any_tree),
        last_rank_(last_rank),
        alone_(*rule.economics),
        values_(rule.calibration, false) {}
  std::string name() const override { return name_; }
  CostDrivenDyspec* by_costs() override { return this; }

  void begin(const GrowthLimits& limits, TokenId root) override;
  void propose(DraftSource& source) override;
  void take(DraftSource& source) override;
  void finish(TokenTree& tree) override;

  /// Returns the prior of a tree within these limits, before its root is evaluated.
  GrowthPrior prior(const GrowthLimits& limits) const {
    return {&calibration_, limits.max_size, limits.max_depth,
            last_rank_,    limits.weight,   limits.drafts};
  }

  // What a BatchGrowth reads and grows:

  /// Between begin() and finish(), once the root is evaluated or something was proposed; not after
  /// this has failed.
  bool grows() const { return source_ != nullptr; }
  bool has_room() const { return candidates_.size() < limits_.max_size; }
  bool looks() const { return looks_; }
  bool has_proposals() const { return limits_.proposer != nullptr; }
  const GrowthLimits& limits() const { return limits_; }
  const AcceptanceCalibration& calibration() const { return calibration_; }
  const TokenTree& candidates() const { return candidates_; }
  /// By node: of its next child that is drawn.
  std::span<const OpenPosition> open() const { return open_; }
  /// The position of a node's next child that is proposed; null: nothing is.
  const OpenPosition* proposed(std::int32_t node) const {
    const auto n = static_cast<std::size_t>(node);
    return proposals_[n] < 0 ? nullptr : &proposed_[n];
  }
  /// Draws a node's next child. False: there is none.
  bool draw(std::int32_t parent) { return draw(parent, *source_); }
  /// Adds a node's next child that is proposed.
  void take_proposal(std::int32_t parent);
  /// Has the next pass evaluate a node, with those above it that are not.
  void want(std::int32_t node);

 private:
  BatchGrowth& group() { return limits_.common == nullptr ? alone_ : *limits_.common; }
  void revalue(std::int32_t node, DraftSource& source);
  void revalue_proposal(std::int32_t node, DraftSource& source);
  bool hear(std::int32_t node, DraftSource& source);
  void revalue_all(DraftSource& source);
  bool draw(std::int32_t parent, DraftSource& source);
  void added(std::int32_t parent, DraftSource& source);
  std::int32_t children(std::int32_t node) const {
    return open_[static_cast<std::size_t>(node)].rank + values_.certain_children(node);
  }

  const char* name_;
  const AcceptanceCalibration& calibration_;
  bool looks_;
  std::int32_t last_rank_;
  BatchGrowth alone_;
  PositionValues values_;
  std::vector<OpenPosition> open_;               ///< by node: of its next child
  std::vector<std::optional<DrawnChild>> seen_;  ///< these children, where it looks at them
  std::vector<OpenPosition> proposed_;           ///< by node: of the next child that is proposed
  std::vector<TokenId> proposals_;               ///< these children
  std::vector<double> proposals_believed_;       ///< what the draft believes of them; 0: not known
  std::vector<double> believed_;                 ///< by node: the same of those in the tree
  std::vector<std::int32_t> kept_;
  DraftSource* source_ = nullptr;  ///< null: nothing grows (grows())
};

}  // namespace coppice
