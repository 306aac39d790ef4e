#include "reference/naive_rejection.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace coppice::testing {
namespace {

// Scales to a sum of 1; false if there is nothing to scale.
bool normalise(std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (!(sum > 1e-12)) return false;
  for (double& value : values) value /= sum;
  return true;
}

TokenId inverse_cdf_of(const std::vector<double>& probs, double u) {
  const double wanted = u * std::accumulate(probs.begin(), probs.end(), 0.0);
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

class NaiveRejectionVerifier final : public Verifier {
 public:
  std::string name() const override { return "rejection, literal"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    verdict.path.clear();
    std::int32_t node = 0;
    std::uint64_t node_key = root_node_key;
    while (true) {
      const std::span<const float> target_probs = target.distribution(node);
      residual_.assign(target_probs.begin(), target_probs.end());
      const std::int32_t accepted = judge_children(tree, node, node_key, draft, key);
      if (accepted < 0) break;
      verdict.path.push_back(accepted);
      node = accepted;
      node_key = child_node_key(node_key, tree.rank[static_cast<std::size_t>(node)]);
    }
    verdict.bonus = inverse_cdf_of(residual_, uniform(RandomStream::residual, key, node_key, 0));
  }

 private:
  // The accepted child, or -1 with the residual to sample from.
  std::int32_t judge_children(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                              const DistributionTable& table, const StepKey& key) {
    const std::vector<double> target = residual_;
    std::vector<double> draft;
    for (std::int32_t child = node + 1; child < tree.nodes(); ++child) {
      const auto i = static_cast<std::size_t>(child);
      if (tree.parent[i] != node) continue;
      if (draft.empty()) {
        const auto row = table.row(tree.candidate[static_cast<std::size_t>(node)]);
        draft.assign(row.begin(), row.end());
      }
      const auto token = static_cast<std::size_t>(tree.token[i]);
      const double u =
          uniform(RandomStream::accept, key, node_key, static_cast<std::uint64_t>(tree.rank[i]));
      if (u * draft[token] < residual_[token]) return child;
      for (std::size_t t = 0; t < residual_.size(); ++t) {
        residual_[t] = std::max(0.0, residual_[t] - draft[t]);
      }
      if (!normalise(residual_)) {
        residual_ = target;
        return -1;
      }
      draft[token] = 0.0;
      if (!normalise(draft)) return -1;
    }
    return -1;
  }

  std::vector<double> residual_;
};

}  // namespace

std::unique_ptr<Verifier> make_naive_rejection_verifier() {
  return std::make_unique<NaiveRejectionVerifier>();
}

}  // namespace coppice::testing
