// What one generation asks for, settled before its sequence is looked at.
#pragma once

#include <cmath>
#include <cstdint>
#include <stop_token>

#include "engine/engine_impl.h"
#include "engine/tree_plan.h"

namespace coppice {

/// Checked options with everything derived from them.
struct SettledRequest {
  /// Plans the trees and, for sizes chosen from costs, has the costs measured. Throws as
  /// plan_trees() and Engine::Impl::find_costs() do. `stop` ends the measurement.
  SettledRequest(Engine::Impl& engine, const GenerateOptions& asked,
                 const std::stop_token& stop = {});

  /// As asked, but for what is settled: the policy (plain, too, without a draft and where costs
  /// cannot be measured, or were not to be) and the acceptance rule.
  GenerateOptions options;
  TreePlan plan;
  double planning_seconds = 0.0;
  /// Null unless sizes are chosen step by step.
  const CostTable* costs = nullptr;
  RuleChoice* rules =
      nullptr;  ///< of the engine, to be told how this sequence fared; null if it is not
  /// As asked for; else the target's temperature, or at 0 default_greedy_draft_temperature. The
  /// draft's logits are divided by it (`draft.params`). But if it was asked for under coupled
  /// acceptance, it is the belief temperature, and they are divided by the target's.
  double draft_temperature;
  /// Settings of the first step: beliefs may be learned from there.
  DraftRunner::Setting draft;
  bool learns_values = false;  ///< of positions: by what is known of their acceptance
  bool learns_belief = false;  ///< else its inverse temperature is fixed
  /// The engine's record, to be told where this sequence's inverse temperature ended; null if it is
  /// not.
  PairInverseTemperature* inverse_temperature = nullptr;
  /// The engine's policy of when the draft is to begin. Null unless sizes are chosen step by step.
  DraftStartPolicy* draft_start = nullptr;

  bool has_draft = false;       ///< loaded, and to be used
  std::vector<TokenBias> bias;  ///< in the order of tokens
  /// Tokens that end the text and have no chance before min_new_tokens; empty where that is 0.
  std::vector<TokenId> ends;

  /// Whether trees have looked-up children.
  bool looks_up() const { return options.lookup != Lookup::none; }

  /// Under which what sequences have taught is kept.
  std::int64_t tenths_of_temperature() const {
    return std::lround(10.0 * options.sampling.temperature);
  }
  bool greedy() const { return options.sampling.temperature == 0.0; }
  AcceptanceRule rule() const;

 private:
  void settle_rule(Engine::Impl& engine);
  void settle_draft();
  void settle_inverse_temperature(Engine::Impl& engine);
  void settle_draft_start(Engine::Impl& engine);
};

}  // namespace coppice
