#include "verify/planted_faults-inl.h"

namespace coppice {

void OrderLost::judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
                      const StepKey& key, Verdict& verdict) {
  // Siblings trade places, and with them all but their parent and depth: tokens of siblings are
  // sorted, and their subtrees follow.
  const auto nodes = static_cast<std::size_t>(tree.nodes());
  std::vector<std::int32_t> order(nodes), place(nodes);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    return tree.depth[i] != tree.depth[j] ? tree.depth[i] < tree.depth[j]
                                          : tree.token[i] < tree.token[j];
  });
  TokenTree sorted;
  sorted.reset(tree.token[0]);
  sorted.candidate[0] = tree.candidate[0];
  for (std::size_t at = 1; at < nodes; ++at) {
    const auto i = static_cast<std::size_t>(order[at]);
    place[i] = static_cast<std::int32_t>(at);
    sorted.add(place[static_cast<std::size_t>(tree.parent[i])], tree.token[i], tree.rank[i],
               tree.draft_prob[i], tree.value[i]);
    sorted.candidate.back() = tree.candidate[i];
    sorted.origin.back() = tree.origin[i];
  }
  class Sorted final : public TargetSource {
   public:
    Sorted(TargetSource& target, const std::vector<std::int32_t>& order)
        : target_(target), order_(order) {}
    std::span<const float> distribution(std::int32_t node) override {
      return target_.distribution(order_[static_cast<std::size_t>(node)]);
    }
    TokenId argmax(std::int32_t node) override {
      return target_.argmax(order_[static_cast<std::size_t>(node)]);
    }

   private:
    TargetSource& target_;
    const std::vector<std::int32_t>& order_;
  } sorted_target(target, order);
  verifier_->judge(sorted, sorted_target, draft, key, verdict);
  for (std::int32_t& node : verdict.path) node = order[static_cast<std::size_t>(node)];
}

void OtherDraft::judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
                       const StepKey& key, Verdict& verdict) {
  DistributionTable other(draft.rows(), draft.vocab_size());
  for (std::int32_t node = 0; node < draft.rows(); ++node) {
    if (!draft.has(node)) continue;
    const std::span<const float> from = draft.row(node);
    const std::span<float> to = other.row(node);
    double sum = 0.0;
    for (const float prob : from) sum += std::sqrt(static_cast<double>(prob));
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i] = static_cast<float>(std::sqrt(static_cast<double>(from[i])) / sum);
    }
  }
  verifier_->judge(tree, target, other, key, verdict);
}

void rotate_by_index(const PassRows& rows) {
  for (const PassRows::Text& text : rows.texts) {
    for (std::int32_t r = 0; r < text.nodes(); ++r) {
      rows.positions[static_cast<std::size_t>(text.first + text.prefill + r)] =
          text.state->length() - 1 + r;
    }
  }
}

std::unique_ptr<Verifier> make_faulty_rejection_verifier(JudgingFault fault) {
  return make_faulty_rejection_verifier(fault, PhiloxDecisions());
}

}  // namespace coppice
