#include "drafting/dyspec_by_costs.h"
#include "drafting/policy.h"

namespace coppice {
namespace {

// One path. Every token drawn stays, and where it ends is fixed before the first is drawn.
class ChainPolicy final : public DraftPolicy {
 public:
  std::string name() const override { return "chain"; }

  void take(DraftSource& source) override {
    wanted_.clear();
    const std::int32_t node = arena_.size();
    const auto drawn = source.child(arena_, node, 0);
    if (!drawn) return;
    arena_.add(node, drawn->token, 0, drawn->prob, arena_.path_prob.back(), drawn->belief,
               drawn->uniform);
    if (goes_on()) wanted_.push_back(node + 1);
  }

 private:
  bool goes_on() const {
    const double value = arena_.path_prob.back();
    return arena_.size() < limits_.max_size && arena_.size() < limits_.max_depth && value > 0.0 &&
           value >= limits_.min_value;
  }
};

}  // namespace

std::unique_ptr<DraftPolicy> make_chain_policy(const DyspecRule& rule) {
  if (rule.economics == nullptr) return std::make_unique<ChainPolicy>();
  return std::make_unique<DyspecByCosts>("chain", rule, 0);
}

}  // namespace coppice
