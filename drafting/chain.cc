#include <algorithm>
#include <span>

#include "drafting/growth_economics.h"
#include "drafting/policy.h"
#include "drafting/position_values.h"

namespace coppice {
namespace {

// One path. Every token drawn stays, and where it ends is decided before the next one is drawn: by
// limits, or by what the tokens so far, and the numbers u that will judge them, say of their
// acceptance. All of these belong to ancestors of what is or is not drawn, so the proof in
// drafting/dyspec.cc holds: growth may look at them, as x's own token and u are not among them.
class ChainPolicy final : public DraftPolicy {
 public:
  explicit ChainPolicy(const ChainRule& rule) : rule_(rule), values_(rule.calibration, false) {}
  std::string name() const override { return "chain"; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    tree.reset(tree.token[0]);
    values_.reset();
    const std::int32_t most = std::min(limits.max_size, limits.max_depth);
    while (tree.size() < most) {
      const std::int32_t node = tree.size();
      const double value = tree.path_prob.back();
      if (!(value > 0.0) || value < limits.min_value) return;
      if (node > 0 && rule_.economics != nullptr && !pays(tree, most)) return;
      source.evaluate(tree, std::span(&node, 1));
      const auto drawn = source.child(tree, node, 0);
      if (!drawn) return;
      tree.add(node, drawn->token, 0, drawn->prob, value, drawn->belief, drawn->uniform);
      if (rule_.economics != nullptr) values_.added(tree);
    }
  }

 private:
  // Whether some number of further nodes brings more than their draft passes and rows cost. (Rows
  // come in steps: the next one alone may cost more than it brings.)
  bool pays(const TokenTree& tree, std::int32_t most) const {
    const std::int32_t size = tree.size();
    const double before = rule_.economics->verify_cost(size);
    double reached = values_.expected_first_child(tree, size), gain = 0.0;
    for (std::int32_t more = 1; size + more <= most; ++more) {
      gain += reached;
      const double cost =
          rule_.economics->verify_cost(size + more) - before + more * rule_.economics->pass_cost(1);
      if (gain > cost) return true;
      reached *= rule_.calibration->position(0, size + more + 1);
    }
    return false;
  }

  ChainRule rule_;
  PositionValues values_;
};

}  // namespace

std::unique_ptr<DraftPolicy> make_chain_policy(const ChainRule& rule) {
  return std::make_unique<ChainPolicy>(rule);
}

}  // namespace coppice
