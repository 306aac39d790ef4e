// Proposals under a text's rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/proposer.h"

namespace coppice {

/// Proposes what a text's rules (TokenTree::rules) leave no choice about: where one token may
/// follow, that; where all texts go on alike, its usual spelling, which the target may spell in
/// other tokens. Elsewhere what another proposes, if the rules allow it. That a run is forced is
/// said by tokens alone, so that any use is exact, as of every Proposer.
class RuledProposer final : public Proposer {
 public:
  /// `other` may be null and is asked where nothing is forced.
  explicit RuledProposer(Proposer* other = nullptr) : other_(other) {}

  void begin() override;
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but = -1) override;
  double chance_beside(std::int32_t node, TokenId token, double chance, double belief) override;
  /// Learns how often the usual spelling was right.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);

 private:
  double spelling_chance() const { return (accepted_ + 9.0) / (seen_ + 10.0); }

  Proposer* other_;
  struct Spelt {
    std::int32_t node;  ///< candidate whose child it is
    TokenId token;
  };
  std::vector<Spelt> spelt_;
  double accepted_ = 0.0, seen_ = 0.0;
};

}  // namespace coppice
