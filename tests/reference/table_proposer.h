// A proposer by table of paths, for tests of exactness.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/random.h"
#include "drafting/proposer.h"
#include "reference/table_draft.h"
#include "reference/tabular_model.h"

namespace coppice::testing {

/// Proposes up to `most` tokens under each path, which and with what chance by a hash of it.
class TableProposer final : public Proposer {
 public:
  TableProposer(std::size_t vocab, std::uint64_t seed, std::size_t most)
      : vocab_(vocab), seed_(seed), most_(most) {}
  void begin() override {}
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but) override {
    std::uint64_t hash = seed_;
    for (const TokenId token : path_to(candidates, node)) hash = child_node_key(hash, token);
    for (std::size_t i = 0; i < most_; ++i) {
      hash = child_node_key(hash, 7);
      const auto token = static_cast<TokenId>((hash >> 20) % vocab_);
      if (token == but || is_child(candidates, node, token)) continue;
      const double chance = 0.2 + 0.7 * static_cast<double>(hash >> 40 & 0xff) / 256.0;
      return Proposal{token, chance, 0.5};
    }
    return std::nullopt;
  }
  double chance_beside(std::int32_t, TokenId, double chance, double belief) override {
    return 0.3 * chance + 0.6 * belief + 0.05;
  }

 private:
  static bool is_child(const TokenTree& candidates, std::int32_t node, TokenId token) {
    for (std::size_t n = 1; n < candidates.token.size(); ++n) {
      if (candidates.parent[n] == node && candidates.token[n] == token) return true;
    }
    return false;
  }
  std::size_t vocab_;
  std::uint64_t seed_;
  std::size_t most_;
};

/// The same limits, with a proposer.
inline LimitsRule proposing(LimitsRule limits, Proposer& proposer, bool drafts = true) {
  return [limits = std::move(limits), &proposer, drafts](std::int32_t step, std::int32_t accepted) {
    GrowthLimits with = limits(step, accepted);
    with.proposer = &proposer;
    with.drafts = drafts;
    return with;
  };
}

}  // namespace coppice::testing
