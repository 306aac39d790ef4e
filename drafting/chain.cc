#include "drafting/cost_driven_dyspec.h"
#include "drafting/policy.h"
#include "drafting/proposer.h"

namespace coppice {
namespace {

// One path. Every token drawn stays, and where it ends is fixed before the first is drawn. Without
// a draft it is what is proposed.
class ChainPolicy final : public DraftPolicy {
 public:
  std::string name() const override { return "chain"; }

  void take(DraftSource& source) override {
    frontier_.clear();
    const std::int32_t node = candidates_.size();
    if (!limits_.drafts) return propose_all(node);
    const auto drawn = source.child(candidates_, node, 0);
    if (!drawn) return;
    candidates_.add(node, drawn->token, 0, drawn->prob, candidates_.path_prob.back(), drawn->belief,
                    drawn->uniform);
    if (goes_on()) frontier_.push_back(node + 1);
  }

 private:
  void propose_all(std::int32_t node) {
    const auto found =
        limits_.proposer == nullptr ? std::nullopt : limits_.proposer->next(candidates_, node);
    if (!found) return;
    candidates_.add_certain(node, found->token, 0,
                            candidates_.value[static_cast<std::size_t>(node)] * found->chance,
                            found->chance);
    if (goes_on()) frontier_.push_back(node + 1);
  }

  bool goes_on() const {
    const double value = limits_.drafts ? candidates_.path_prob.back() : candidates_.value.back();
    return candidates_.size() < limits_.max_size && candidates_.size() < limits_.max_depth &&
           value > 0.0 && value >= limits_.min_value;
  }
};

}  // namespace

std::unique_ptr<DraftPolicy> make_chain_policy(const DyspecRule& rule) {
  if (rule.economics == nullptr) return std::make_unique<ChainPolicy>();
  return std::make_unique<CostDrivenDyspec>("chain", rule, 0);
}

}  // namespace coppice
