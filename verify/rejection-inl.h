// Recursive rejection over any source of decisions. Included where it is instantiated:
// verify/rejection.cc, verify/planted_faults.cc and tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/decisions.h"
#include "kernels/logits.h"
#include "kernels/rejection_rule.h"
#include "verify/verifier.h"

namespace coppice {

/// `Node`: the rule at one node, NodeRejection but for planted faults.
template <typename Decisions, typename Node = NodeRejection>
class RejectionVerifier final : public Verifier {
 public:
  explicit RejectionVerifier(Decisions decide = {}, std::string name = "rejection")
      : decide_(std::move(decide)), name_(std::move(name)) {}
  std::string name() const override { return name_; }

  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    verdict.path.clear();
    std::int32_t node = 0;
    while (true) {
      node = judge_children(tree, node, target.distribution(node), draft, key, verdict);
      if (node < 0) return;
      verdict.path.push_back(node);
    }
  }

 private:
  // The accepted child of `node`, or -1 with the bonus set.
  std::int32_t judge_children(const TokenTree& tree, std::int32_t node,
                              std::span<const float> target_probs, const DistributionTable& draft,
                              const StepKey& key, Verdict& verdict) {
    const std::uint64_t node_key = tree.key[static_cast<std::size_t>(node)];
    const RandomAddress bonus_at{RandomStream::residual, key, node_key, 0};
    std::int32_t child = tree.first_child[static_cast<std::size_t>(node)];
    if (child < 0) {
      verdict.bonus =
          decide_(bonus_at, [&](double u) { return sample_inverse_cdf(target_probs, u); });
      return -1;
    }
    // A node whose children all came from no distribution may have no D: scale stays 0.
    const std::int32_t candidate = tree.candidate[static_cast<std::size_t>(node)];
    const bool has_draft = draft.has(candidate);
    const std::span<const float> draft_probs = has_draft ? draft.row(candidate) : target_probs;
    Node state;
    for (std::uint64_t rank = 0; child >= 0;
         child = tree.next_sibling[static_cast<std::size_t>(child)], ++rank) {
      const auto token = static_cast<std::size_t>(tree.token[static_cast<std::size_t>(child)]);
      const double target_prob = static_cast<double>(target_probs[token]);
      const double draft_prob = has_draft ? static_cast<double>(draft_probs[token]) : 0.0;
      const RandomAddress at{RandomStream::accept, key, node_key, rank};
      const bool certain = tree.is_certain(child);
      if (decide_(at, [&](double u) {
            return certain ? state.accepts_certain(u, target_prob, draft_prob)
                           : state.accepts(u, target_prob, draft_prob);
          })) {
        return child;
      }
      if (certain) {
        state.reject_certain(draft_prob);
        if (Node::certain_leave) target_probs = without(target_probs, token);
      } else {
        state.reject(draft_prob);
      }
      const ResidualMass mass = residual_mass(target_probs, draft_probs, state.scale);
      state.note_masses(mass.residual, mass.draft);
      if (!state.has_residual()) break;
    }
    verdict.bonus = decide_(bonus_at, [&](double u) {
      const TokenId token =
          state.has_residual() ? sample_residual(target_probs, draft_probs, state.scale, u) : -1;
      return token < 0 ? sample_inverse_cdf(target_probs, u) : token;
    });
    return -1;
  }

  // T with 0 for a token, here or where it lies already. The row itself is the target's.
  std::span<const float> without(std::span<const float> target_probs, std::size_t token) {
    if (target_probs.data() != left_.data()) left_.assign(target_probs.begin(), target_probs.end());
    left_[token] = 0.0f;
    return left_;
  }

  Decisions decide_;
  std::string name_;
  std::vector<float> left_;
};

}  // namespace coppice
