#include <span>

#include "drafting/policy.h"

namespace coppice {
namespace {

// One path. Every token drawn stays, so no limit can bias it.
class ChainPolicy final : public DraftPolicy {
 public:
  std::string name() const override { return "chain"; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    tree.reset(tree.token[0]);
    while (tree.size() < limits.max_size && tree.size() < limits.max_depth) {
      const std::int32_t node = tree.size();
      const double value = tree.path_prob.back();
      if (!(value > 0.0) || value < limits.min_value) return;
      source.evaluate(tree, std::span(&node, 1));
      const auto drawn = source.child(tree, node, 0);
      if (!drawn) return;
      tree.add(node, drawn->token, 0, drawn->prob, value);
    }
  }
};

}  // namespace

std::unique_ptr<DraftPolicy> make_chain_policy() { return std::make_unique<ChainPolicy>(); }

}  // namespace coppice
