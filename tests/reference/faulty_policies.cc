#include "reference/faulty_policies.h"

#include <algorithm>
#include <vector>

#include "reference/wrapped_policy.h"

namespace coppice::testing {
namespace {

// Replaces `tree` by its nodes `kept`, which hold their parents and earlier siblings before them.
void keep(TokenTree& tree, const std::vector<std::int32_t>& kept) {
  const TokenTree whole = tree;
  tree.assign_part(whole, kept);
}

class TokenTiePolicy final : public WrappedPolicy {
 public:
  TokenTiePolicy() : WrappedPolicy(make_dyspec_policy()) {}
  std::string name() const override { return "dyspec, ties by token"; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    max_size_ = limits.max_size;
    GrowthLimits widened = limits;
    widened.max_size += 2;
    WrappedPolicy::begin(widened, root);
  }

  void finish(TokenTree& tree) override {
    WrappedPolicy::finish(tree);
    // Greedily anew: the largest value among what may be added, the lowest token among equals.
    const std::int32_t nodes = tree.nodes();
    std::vector<std::int32_t> kept, children(static_cast<std::size_t>(nodes), 0);
    std::vector<char> added(static_cast<std::size_t>(nodes), 0);
    added[0] = 1;
    while (static_cast<std::int32_t>(kept.size()) < max_size_) {
      std::int32_t best = -1;
      for (std::int32_t node = 1; node < nodes; ++node) {
        const auto i = static_cast<std::size_t>(node);
        const auto parent = static_cast<std::size_t>(tree.parent[i]);
        if (added[i] != 0 || added[parent] == 0 || children[parent] != tree.rank[i]) continue;
        const auto b = static_cast<std::size_t>(std::max(best, 0));
        if (best < 0 || tree.value[i] > tree.value[b] ||
            (tree.value[i] == tree.value[b] && tree.token[i] < tree.token[b])) {
          best = node;
        }
      }
      if (best < 0) break;
      added[static_cast<std::size_t>(best)] = 1;
      ++children[static_cast<std::size_t>(tree.parent[static_cast<std::size_t>(best)])];
      kept.push_back(best);
    }
    keep(tree, kept);
  }

 private:
  std::int32_t max_size_ = 0;
};

class HindsightPolicy final : public WrappedPolicy {
 public:
  HindsightPolicy() : WrappedPolicy(make_dyspec_policy()) {}
  std::string name() const override { return "dyspec, size in hindsight"; }

  void finish(TokenTree& tree) override {
    WrappedPolicy::finish(tree);
    // A target pass costs as much as four of its rows.
    constexpr double pass_cost = 4.0;
    double produced = 1.0, best = 1.0 / pass_cost;
    std::int32_t best_size = 0;
    for (std::int32_t size = 1; size <= tree.size(); ++size) {
      produced += tree.path_prob[static_cast<std::size_t>(size)];
      const double rate = produced / (pass_cost + static_cast<double>(size));
      if (rate > best) {
        best = rate;
        best_size = size;
      }
    }
    std::vector<std::int32_t> kept;
    for (std::int32_t node = 1; node <= best_size; ++node) kept.push_back(node);
    keep(tree, kept);
  }
};

}  // namespace

std::unique_ptr<DraftPolicy> make_token_tie_policy() { return std::make_unique<TokenTiePolicy>(); }
std::unique_ptr<DraftPolicy> make_hindsight_policy() { return std::make_unique<HindsightPolicy>(); }

}  // namespace coppice::testing
