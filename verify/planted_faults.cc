#include "verify/planted_faults.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/logits.h"

namespace coppice {
namespace {

double sum_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (double value : values) sum += value;
  return sum;
}

// Scales to a sum of 1; false where there is nothing to scale.
bool normalise(std::vector<double>& values) {
  const double sum = sum_of(values);
  if (!(sum > 1e-12)) return false;
  for (double& value : values) value /= sum;
  return true;
}

TokenId sample(const std::vector<double>& probs, double u) {
  const double wanted = u * sum_of(probs);
  double sum = 0.0;
  TokenId last = 0;
  for (std::size_t i = 0; i < probs.size(); ++i) {
    if (!(probs[i] > 0.0)) continue;
    last = static_cast<TokenId>(i);
    sum += probs[i];
    if (sum > wanted) break;
  }
  return last;
}

class FaultyRejectionRule final : public AcceptanceRule {
 public:
  explicit FaultyRejectionRule(JudgingFault fault) : fault_(fault) {}

  std::string name() const override {
    switch (fault_) {
      case JudgingFault::none:
        return "rejection, literal";
      case JudgingFault::residual_not_renormalised:
        return "rejection, residual not renormalised";
      case JudgingFault::accepts_at_zero:
        return "rejection, accepts at probability 0";
      case JudgingFault::siblings_share_uniform:
        return "rejection, siblings share a uniform";
      case JudgingFault::residual_shares_draft_noise:
        return "rejection, residual shares noise with drafting";
      case JudgingFault::sibling_order_lost:
        return "rejection, sibling order lost";
      case JudgingFault::declared_is_not_sampled:
        return "rejection, declared distribution is not the one sampled";
    }
    return "rejection";
  }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    verdict.path.clear();
    std::int32_t node = 0;
    std::uint64_t node_key = root_node_key;
    while (true) {
      children_.clear();
      for (std::int32_t i = node + 1; i < tree.nodes(); ++i) {
        if (tree.parent[static_cast<std::size_t>(i)] == node) children_.push_back(i);
      }
      const std::span<const float> target_probs = target.distribution(node);
      target_.assign(target_probs.begin(), target_probs.end());
      residual_ = target_;
      const std::int32_t accepted = judge_children(tree, node, node_key, draft, key);
      if (accepted < 0) {
        const bool shared = fault_ == JudgingFault::residual_shares_draft_noise;
        const double u =
            uniform(shared ? RandomStream::draft : RandomStream::residual, key, node_key, 0);
        verdict.bonus = sample(residual_, u);
        return;
      }
      verdict.path.push_back(accepted);
      node = accepted;
      node_key = child_node_key(node_key, tree.rank[static_cast<std::size_t>(node)]);
    }
  }

 private:
  // The accepted child, or -1 with the residual to sample from.
  std::int32_t judge_children(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                              const DistributionTable& table, const StepKey& key) {
    if (children_.empty()) return -1;
    const auto row = table.row(tree.source[static_cast<std::size_t>(node)]);
    draft_.assign(row.begin(), row.end());
    if (fault_ == JudgingFault::declared_is_not_sampled) {
      for (double& prob : draft_) prob = std::sqrt(prob);
      normalise(draft_);
    }
    if (fault_ == JudgingFault::sibling_order_lost) {
      std::sort(children_.begin(), children_.end(), [&](std::int32_t a, std::int32_t b) {
        return tree.token[static_cast<std::size_t>(a)] < tree.token[static_cast<std::size_t>(b)];
      });
    }
    for (const std::int32_t child : children_) {
      const auto token = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(child)]);
      if (accepts(residual_[token], draft_[token], key, node_key,
                  tree.rank[static_cast<std::size_t>(child)])) {
        return child;
      }
      for (std::size_t i = 0; i < residual_.size(); ++i) {
        residual_[i] = std::max(0.0, residual_[i] - draft_[i]);
      }
      if (fault_ == JudgingFault::residual_not_renormalised) {
        if (!(sum_of(residual_) > 1e-12)) residual_ = target_;
      } else if (!normalise(residual_)) {
        residual_ = target_;
        return -1;
      }
      draft_[token] = 0.0;
      if (!normalise(draft_)) return -1;
    }
    return -1;
  }

  bool accepts(double residual, double draft, const StepKey& key, std::uint64_t node_key,
               std::int32_t rank) const {
    const bool shared = fault_ == JudgingFault::siblings_share_uniform;
    const double u =
        uniform(RandomStream::accept, key, node_key, shared ? 0 : static_cast<std::uint64_t>(rank));
    if (fault_ == JudgingFault::accepts_at_zero)
      return std::floor(u * 16.0) / 16.0 * draft <= residual;
    return u * draft < residual;
  }

  JudgingFault fault_;
  std::vector<std::int32_t> children_;
  std::vector<double> target_, residual_, draft_;
};

}  // namespace

std::unique_ptr<AcceptanceRule> make_faulty_rejection_rule(JudgingFault fault) {
  return std::make_unique<FaultyRejectionRule>(fault);
}

}  // namespace coppice
