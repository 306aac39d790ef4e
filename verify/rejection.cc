#include <algorithm>

#include "kernels/logits.h"
#include "verify/acceptance.h"
#include "verify/children.h"

namespace coppice {
namespace {

// A residual mass of this size or less is rounding: T and D are floats, taken as exact, and
// T - c D is computed in double.
constexpr double no_mass = 1e-12;

// Recursive rejection. After k rejected siblings the residual R is proportional to
// max(T - c D, 0), and D' to D without their tokens: with Z the mass of the former and s the
// mass of those tokens under D, the next child y is accepted with probability
//   min(1, R(y) / D'(y)) = min(1, ((T(y) - c D(y)) / Z) / (D(y) / (1 - s))),
// and its rejection replaces c by c + Z / (1 - s): no residual vector is kept. (T - c D is
// negative at rejected tokens, so D may stand for D' in the residual.)
class RejectionRule final : public AcceptanceRule {
 public:
  std::string name() const override { return "rejection"; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    links_.assign(tree);
    verdict.path.clear();
    std::int32_t node = 0;
    std::uint64_t node_key = root_node_key;
    while (true) {
      const std::span<const float> target_probs = target.distribution(node);
      const std::int32_t accepted =
          judge_children(tree, node, node_key, target_probs, draft, key, verdict);
      if (accepted < 0) return;
      verdict.path.push_back(accepted);
      node = accepted;
      node_key = child_node_key(node_key, tree.rank[static_cast<std::size_t>(node)]);
    }
  }

 private:
  // The accepted child of `node`, or -1 with the bonus set.
  std::int32_t judge_children(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                              std::span<const float> target_probs, const DistributionTable& draft,
                              const StepKey& key, Verdict& verdict) const {
    const double residual_uniform = uniform(RandomStream::residual, key, node_key, 0);
    std::int32_t child = links_.first_child(node);
    if (child < 0) {
      verdict.bonus = sample_inverse_cdf(target_probs, residual_uniform);
      return -1;
    }
    const std::span<const float> draft_probs =
        draft.row(tree.source[static_cast<std::size_t>(node)]);
    double scale = 0.0;          // c
    double residual_left = 1.0;  // Z
    double draft_total = 1.0;    // D's own sum; looked at once a child has been rejected
    double draft_drawn = 0.0;    // s
    for (std::uint64_t rank = 0; child >= 0; child = links_.next_sibling(child), ++rank) {
      const auto token = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(child)]);
      const double target_prob = static_cast<double>(target_probs[token]);
      const double draft_prob = static_cast<double>(draft_probs[token]);
      const double residual = std::max(0.0, target_prob - scale * draft_prob);
      const double draft_left = std::max(draft_total - draft_drawn, draft_prob);
      // u > 0, so that a ratio of 0 never accepts.
      const double u = uniform(RandomStream::accept, key, node_key, rank);
      if (u * residual_left * draft_prob < residual * draft_left) return child;
      scale += residual_left / draft_left;
      draft_drawn += draft_prob;
      const ResidualMass mass = residual_mass(target_probs, draft_probs, scale);
      residual_left = mass.residual;
      draft_total = mass.draft;
      if (residual_left <= no_mass) break;
    }
    verdict.bonus = residual_left > no_mass
                        ? sample_residual(target_probs, draft_probs, scale, residual_uniform)
                        : -1;
    // Where T is D but for rounding, nothing is left: a rejection here has a probability of
    // rounding's own size, and T itself serves.
    if (verdict.bonus < 0) verdict.bonus = sample_inverse_cdf(target_probs, residual_uniform);
    return -1;
  }

  ChildLinks links_;
};

}  // namespace

std::unique_ptr<AcceptanceRule> make_rejection_rule() { return std::make_unique<RejectionRule>(); }

}  // namespace coppice
