#include "verify/acceptance.h"
#include "verify/children.h"

namespace coppice {
namespace {

class GreedyRule final : public AcceptanceRule {
 public:
  std::string name() const override { return "greedy"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable&, const StepKey&,
             Verdict& verdict) override {
    follow(
        tree, links_, [&](std::int32_t node) { return target.argmax(node); }, verdict);
  }

 private:
  ChildLinks links_;
};

}  // namespace

std::unique_ptr<AcceptanceRule> make_greedy_rule() { return std::make_unique<GreedyRule>(); }

}  // namespace coppice
