// Children that no draft model draws.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/token_tree.h"
#include "base/types.h"

namespace coppice {

/// A child that comes from no distribution.
struct Proposal {
  TokenId token = -1;
  /// That the target writes it, once its parent is accepted and what was proposed there before is
  /// not; in (0, 1).
  double chance = 0.0;
  /// The same of the first proposal below it, as far as one can tell; 0: there will be none.
  double follow = 0.0;
};

/// Proposes children of the nodes of one growing tree: no pass is needed. What it proposes is a
/// function of texts as they were before the step, and of the tree's tokens, never of noise that is
/// still to decide: then any use of it is exact (kernels/rejection_rule.h).
class Proposer {
 public:
  virtual ~Proposer() = default;
  /// Starts a tree of its root alone.
  virtual void begin() = 0;
  /// The best that is no child of `node` yet and is not `but`; the same again until one is added.
  virtual std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                                       TokenId but = -1) = 0;
  /// Returns the chance of a proposed child of `node` once the draft has evaluated that, and
  /// believes in the child with `belief` (DraftSource::belief_of); `chance`: the one so far.
  virtual double chance_beside(std::int32_t /*node*/, TokenId /*token*/, double chance,
                               double /*belief*/) {
    return chance;
  }
};

}  // namespace coppice
