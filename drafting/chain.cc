#include <optional>

#include "drafting/batch_growth.h"
#include "drafting/policy.h"
#include "drafting/proposer.h"
#include "drafting/valued_tree.h"

namespace coppice {
namespace {

// One path. Every token drawn stays, and where it ends is fixed before the first is drawn. Without
// a draft it is what is proposed. Beside a draft, a node's child is the proposer's where its chance
// is better than the draft's: than the share expected of the next draw, which D at the node says
// before the draw. Where any tree is exact, the drawn child itself is compared, and may be dropped.
class ChainPolicy final : public DraftPolicy {
 public:
  explicit ChainPolicy(bool any_tree) : any_tree_(any_tree) {}
  std::string name() const override { return "chain"; }

  void take(DraftSource& source) override {
    frontier_.clear();
    const std::int32_t node = candidates_.size();
    const auto found =
        limits_.proposer == nullptr ? std::nullopt : limits_.proposer->next(candidates_, node);
    if (!limits_.drafts) return add_proposed(node, found);
    const double share = found && !any_tree_ ? source.expected_share(node) : -1.0;
    if (share >= 0.0 && found->chance > share) return add_proposed(node, found);
    const auto drawn = source.child(candidates_, node, 0);
    if (found && any_tree_ && found->chance > chance_of(drawn)) return add_proposed(node, found);
    if (!drawn) return;
    candidates_.add(node, drawn->token, 0, drawn->prob, candidates_.path_prob.back(), drawn->belief,
                    drawn->uniform);
    if (goes_on()) frontier_.push_back(node + 1);
  }

 private:
  void add_proposed(std::int32_t node, const std::optional<Proposal>& found) {
    if (!found) return;
    candidates_.add_certain(node, found->token, 0,
                            candidates_.value[static_cast<std::size_t>(node)] * found->chance,
                            found->chance);
    if (goes_on()) frontier_.push_back(node + 1);
  }

  static double chance_of(const std::optional<DrawnChild>& drawn) {
    if (!drawn) return 0.0;
    return static_cast<double>(drawn->belief < 0.0f ? drawn->prob : drawn->belief);
  }

  bool goes_on() const {
    const double value = limits_.drafts ? candidates_.path_prob.back() : candidates_.value.back();
    return candidates_.size() < limits_.max_size && candidates_.size() < limits_.max_depth &&
           value > 0.0 && value >= limits_.min_value;
  }

  bool any_tree_;
};

}  // namespace

std::unique_ptr<DraftPolicy> make_chain_policy(const DyspecRule& rule) {
  if (rule.economics == nullptr) return std::make_unique<ChainPolicy>(rule.any_tree);
  return std::make_unique<ValuedTree>("chain", rule, 0,
                                      std::make_unique<BatchGrowth>(*rule.economics));
}

}  // namespace coppice
