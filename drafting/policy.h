// The one interface of all drafting policies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/token_tree.h"
#include "drafting/draft_source.h"
#include "drafting/lookahead.h"

namespace coppice {

class Grower;
class Proposer;

/// Bounds of one tree. All are fixed before the tree is grown: none looks at a token that
/// may still be dropped, so under sampled rejection none biases the output.
struct GrowthLimits {
  std::int32_t max_size = 64;        ///< most nodes, the root not counted
  std::int32_t max_depth = 1 << 20;  ///< most edges below the root; also the most draft passes
  double min_value = 0.0;            ///< positions of lower value are not drawn
  /// Where trees grow together (drafting/grower.h): for policies that go by costs.
  Grower* common = nullptr;
  double weight = 1.0;  ///< there, of this text's tokens against others'
  /// For the policies that go by values: proposes children beside the draft model's. Null: none.
  Proposer* proposer = nullptr;
  bool drafts = true;  ///< the draft model has a part in the tree
  /// Of the text, which is in this state after the root (TokenTree::rules).
  const TokenRules* rules = nullptr;
  std::int32_t rule_state = 0;
};

/// A tree between two rounds.
struct Growth {
  const TokenTree& candidates;             ///< every node drawn, whether it stays or not
  std::span<const std::int32_t> frontier;  ///< to be evaluated next; none: the tree is finished
};

/// Grows one tree after another, each in rounds (drafting/grow.h makes them, and the draft's
/// passes): nodes of the frontier are evaluated in one pass, then take() draws their children and
/// wants others. Same noise, same tree.
class DraftPolicy {
 public:
  virtual ~DraftPolicy() = default;
  virtual std::string name() const = 0;
  /// Returns what is expected of a tree within these limits, before its root is evaluated, if trees
  /// go by costs: then they can grow together with others' (drafting/batch_growth.h).
  virtual std::optional<GrowthPrior> prior(const GrowthLimits& /*limits*/) const {
    return std::nullopt;
  }

  /// Starts a tree: of its root alone, which is the frontier if the limits admit a child.
  virtual void begin(const GrowthLimits& limits, TokenId root);
  /// After begin() with a proposer: draws what needs no pass. `source` lasts as long as the tree.
  virtual void propose(DraftSource& /*source*/) {}
  /// Good until the next call of begin(), propose() or take().
  virtual Growth growth() const { return {candidates_, frontier_}; }
  /// The nodes of the frontier have been evaluated.
  virtual void take(DraftSource& source) = 0;
  /// The finished tree: all candidates, unless a policy keeps a part of it.
  virtual void finish(TokenTree& tree) { tree = candidates_; }

 protected:
  GrowthLimits limits_;
  TokenTree candidates_;
  std::vector<std::int32_t> frontier_;
};

/// What DySpec's positions are worth, and where growth stops beside its limits. What is pointed to
/// outlives the policy and does not change while a tree grows.
struct DyspecRule {
  /// Null: DySpec's own values (drafting/position_values.h).
  const AcceptanceCalibration* calibration = nullptr;
  /// Null: growth stops by its limits alone. Else by what it costs (drafting/batch_growth.h);
  /// needs a calibration.
  const GrowthEconomics* economics = nullptr;
  /// Where any tree is exact (drafting/any_tree.h): growth also goes by the drawn tokens' own
  /// estimates, and drops what does not pay.
  bool any_tree = false;
};

/// DySpec: always the position of the highest value, exactly (Algorithm 1); with
/// limits.min_value every position that reaches it (Algorithm 2), the best max_size of them. As
/// many draft passes as the tree is deep. A node's value is its position's.
std::unique_ptr<DraftPolicy> make_dyspec_policy(const DyspecRule& rule = {});

/// One path: of max_size tokens, or by a rule with economics as many of them as pay. Each is the
/// draft's or a proposed one, whichever is the better guess.
std::unique_ptr<DraftPolicy> make_chain_policy(const DyspecRule& rule = {});

}  // namespace coppice
