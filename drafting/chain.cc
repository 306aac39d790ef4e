#include <algorithm>

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

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    values_.reset();
  }

  void take(DraftSource& source) override {
    wanted_.clear();
    const std::int32_t node = arena_.size();
    const auto drawn = source.child(arena_, node, 0);
    if (!drawn) return;
    arena_.add(node, drawn->token, 0, drawn->prob, arena_.path_prob.back(), drawn->belief,
               drawn->uniform);
    if (rule_.economics != nullptr) values_.added(arena_);
    if (goes_on()) wanted_.push_back(node + 1);
  }

 private:
  bool goes_on() const {
    const double value = arena_.path_prob.back();
    return arena_.size() < most() && value > 0.0 && value >= limits_.min_value &&
           (rule_.economics == nullptr || pays());
  }
  std::int32_t most() const { return std::min(limits_.max_size, limits_.max_depth); }

  // Whether some number of further nodes brings more than their draft passes and rows cost. (Rows
  // come in steps: the next one alone may cost more than it brings.)
  bool pays() const {
    const std::int32_t size = arena_.size();
    const double before = rule_.economics->verify_cost(size);
    double reached = values_.expected_first_child(arena_, size), gain = 0.0, passes = 0.0;
    for (std::int32_t more = 1; size + more <= most(); ++more) {
      gain += reached;
      passes += rule_.economics->pass_cost(1, size + more - 1);
      if (gain > rule_.economics->verify_cost(size + more) - before + passes) return true;
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
