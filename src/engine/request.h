// What one generation asks for, settled before its text is looked at.
#pragma once

#include "engine/engine_impl.h"
#include "engine/tree_plan.h"

namespace coppice {

/// Checked options with everything derived from them: what was asked and what is used stay apart.
struct Request {
  /// Plans the trees and, for sizes chosen from costs, has the costs measured. Throws as
  /// plan_trees() and Engine::Impl::find_costs() do.
  Request(Engine::Impl& engine, const GenerateOptions& asked);

  GenerateOptions options;  ///< as asked
  TreePlan plan;
  double planning_seconds = 0.0;
  /// Null unless sizes are chosen step by step.
  const CostTable* costs = nullptr;
  Policy policy;  ///< none, too, without a draft and where costs cannot be measured
  DeviceNoise rule;
  SamplingParams target;
  double draft_temperature;
  /// Of the first step: beliefs may be learned from there.
  DraftRunner::Setting draft;
  bool learns_values = false;  ///< of positions: by what is known of their acceptance
  bool believes = false;       ///< children come with beliefs
  bool learns_belief = false;

  bool greedy() const { return options.temperature == 0.0; }

 private:
  void settle_draft(const Engine::Impl& engine);
};

}  // namespace coppice
