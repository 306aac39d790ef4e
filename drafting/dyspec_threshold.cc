#include <algorithm>
#include <vector>

#include "drafting/policy.h"
#include "drafting/position_values.h"
#include "drafting/positions.h"

namespace coppice {
namespace {

// DySpec's Algorithm 2, which expands while a position's value reaches the threshold (the
// listing prints the comparison the other way round), layer by layer. Where max_size would be
// exceeded, the layer at hand takes its best positions and growth ends.
//
// That cap is unbiased: a position is drawn only once it is certain to stay, and what decides
// that (its value, the number drawn so far, the values of its layer's other positions) depends
// on tokens that stay. No token is ever dropped.
class DyspecThresholdPolicy final : public DraftPolicy {
 public:
  explicit DyspecThresholdPolicy(const PositionValues& values) : values_(values) {}
  std::string name() const override { return "dyspec-threshold"; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    tree.reset(tree.token[0]);
    values_.reset();
    layer_.assign(1, 0);
    while (!layer_.empty() && tree.size() < limits.max_size) {
      if (tree.depth[static_cast<std::size_t>(layer_[0])] >= limits.max_depth) return;
      source.evaluate(tree, layer_);
      const auto first_on_top = [&](const Position& a, const Position& b) {
        return before(tree, b, a);
      };
      next_.clear();
      for (const std::int32_t node : layer_) next_.push_back(first_child(tree, node));
      std::make_heap(next_.begin(), next_.end(), first_on_top);
      layer_.clear();
      while (!next_.empty() && tree.size() < limits.max_size) {
        std::pop_heap(next_.begin(), next_.end(), first_on_top);
        Position position = next_.back();
        next_.pop_back();
        if (!admits(position, limits)) break;
        const auto drawn = source.child(tree, position.parent, position.rank);
        if (!drawn) continue;
        const std::int32_t node =
            tree.add(position.parent, drawn->token, position.rank, drawn->prob, position.value);
        values_.added(tree);
        if (admits(first_child(tree, node), limits)) layer_.push_back(node);
        ++position.rank;
        position.value = values_.next_sibling(tree, position.parent, position.rank, position.value);
        next_.push_back(position);
        std::push_heap(next_.begin(), next_.end(), first_on_top);
      }
    }
  }

 private:
  Position first_child(const TokenTree& tree, std::int32_t node) const {
    const auto i = static_cast<std::size_t>(node);
    return {values_.first_child(tree, node), tree.depth[i] + 1, node, 0};
  }

  static bool admits(const Position& position, const GrowthLimits& limits) {
    return position.value > 0.0 && position.value >= limits.min_value;
  }

  PositionValues values_;
  std::vector<std::int32_t> layer_;  // nodes of one draft pass
  std::vector<Position> next_;       // heap: the layer's undrawn positions, first on top
};

}  // namespace

std::unique_ptr<DraftPolicy> make_dyspec_threshold_policy() {
  return std::make_unique<DyspecThresholdPolicy>(PositionValues(nullptr, false));
}

std::unique_ptr<DraftPolicy> make_calibrated_threshold_policy(
    const AcceptanceCalibration& calibration) {
  return std::make_unique<DyspecThresholdPolicy>(PositionValues(&calibration, false));
}

}  // namespace coppice
