#include "drafting/ruled_proposer.h"

#include <algorithm>

#include "base/judged_children.h"
#include "base/rule_end.h"

namespace coppice {
namespace {

// That the one token which may follow does: chances lie below 1.
constexpr double sure = 0.999;
constexpr double most_seen = 1000.0;

}  // namespace

void RuledProposer::begin() {
  spelt_.clear();
  if (other_ != nullptr) other_->begin();
}

std::optional<Proposal> RuledProposer::next(const TokenTree& candidates, std::int32_t node,
                                            TokenId but) {
  const auto mask = candidates.mask(node);
  if (mask != nullptr) {
    if (ends_text(candidates, node)) return std::nullopt;
    const TokenRules& rules = *candidates.rules;
    const std::int32_t state = candidates.rule_state[static_cast<std::size_t>(node)];
    const std::vector<TokenId> forced =
        mask->only >= 0 ? std::vector<TokenId>{mask->only} : rules.forced(state);
    if (!forced.empty() && forced[0] != but && candidates.child_with(node, forced[0]) < 0) {
      Proposal found{forced[0], mask->only >= 0 ? sure : spelling_chance(), 0.0};
      if (forced.size() > 1) {
        found.follow = spelling_chance();
      } else if (const std::int32_t behind = rules.advance(state, forced[0]); behind >= 0) {
        const auto next = rules.mask(behind);
        if (next != nullptr && next->only >= 0) found.follow = sure;
      }
      if (mask->only < 0) spelt_.push_back({node, forced[0]});
      return found;
    }
  }
  if (other_ == nullptr) return std::nullopt;
  std::optional<Proposal> found = other_->next(candidates, node, but);
  if (found && mask != nullptr && !mask->has(found->token)) return std::nullopt;
  return found;
}

// What is forced is so whatever a draft believes.
double RuledProposer::chance_beside(std::int32_t node, TokenId token, double chance,
                                    double belief) {
  return other_ == nullptr ? chance : other_->chance_beside(node, token, chance, belief);
}

void RuledProposer::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  for_each_judged(tree, path, false, [&](std::int32_t node, bool accepted) {
    if (!tree.is_certain(node)) return;
    const auto n = static_cast<std::size_t>(node);
    const std::int32_t above = tree.candidate[static_cast<std::size_t>(tree.parent[n])];
    if (std::ranges::none_of(spelt_, [&](const Spelt& spelt) {
          return spelt.node == above && spelt.token == tree.token[n];
        })) {
      return;
    }
    if (seen_ >= most_seen) {
      seen_ /= 2.0;
      accepted_ /= 2.0;
    }
    seen_ += 1.0;
    accepted_ += accepted ? 1.0 : 0.0;
  });
}

}  // namespace coppice
