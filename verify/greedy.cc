#include "verify/acceptance.h"
#include "verify/children.h"

namespace coppice {
namespace {

class GreedyRule final : public AcceptanceRule {
 public:
  std::string name() const override { return "greedy"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable&, const StepKey&,
             Verdict& verdict) override {
    links_.assign(tree);
    verdict.path.clear();
    std::int32_t node = 0;
    while (true) {
      const TokenId token = target.argmax(node);
      const std::int32_t child = links_.child_with(tree, node, token);
      if (child < 0) {
        verdict.bonus = token;
        return;
      }
      verdict.path.push_back(child);
      node = child;
    }
  }

 private:
  ChildLinks links_;
};

}  // namespace

std::unique_ptr<AcceptanceRule> make_greedy_rule() { return std::make_unique<GreedyRule>(); }

}  // namespace coppice
