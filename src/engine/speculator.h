// How one text speculates: its policy, and what the verdicts have taught it.
#pragma once

#include <memory>
#include <optional>

#include "drafting/belief_temperature.h"
#include "drafting/calibration.h"
#include "engine/settled_request.h"
#include "sizing/auto_size.h"

namespace coppice {

class Speculator {
 public:
  /// Both outlive this.
  Speculator(Engine::Impl& engine, const SettledRequest& request);

  /// Whether the draft can go on from here: not past its own context, and not over tokens that it
  /// has no vocabulary row for.
  bool can_follow(const SequenceState& state) const;
  /// The draft's prefill. Returns its passes. Short of slots, steps will be plain.
  std::int64_t prefill(SequenceState& state);
  /// Bounds of a step's tree, of which `tokens_left` at most can be used; nothing: a plain step.
  /// They depend on what is known before the step alone.
  std::optional<GrowthLimits> plan(const SequenceState& state, std::int32_t tokens_left);
  /// Grows `tree`, whose root is set, in a step that it begins.
  DraftRunner::Step grow(SequenceState& state, const StepKey& key, const GrowthLimits& limits,
                         TokenTree& tree);

  /// What a judged step tells; `draft` is null where it was plain. `seconds` and `disturbed` as
  /// AutoSize::observe() takes them.
  void learn(const TokenTree& tree, const Verdict& verdict, DraftStep* draft,
             const StepSeconds& seconds, bool disturbed);

  /// At a text's end, from its finished statistics.
  void learn_pair(const Statistics& statistics);

  /// What positions are valued by; null if it is nothing that is learned.
  const AcceptanceCalibration* calibration() const;
  const DraftRunner::Setting& setting() const { return setting_; }
  /// As in Statistics: given, or what was learned comes to.
  double draft_temperature() const;

 private:
  void learn_belief(const TokenTree& tree, const Verdict& verdict, DraftSampler& sampler);

  Engine::Impl& engine_;
  const SettledRequest& request_;
  DraftRunner::Setting setting_;
  std::optional<BeliefTemperature> belief_;  ///< learned
  std::unique_ptr<AutoSize> auto_size_;
  std::unique_ptr<AcceptanceCalibration> calibration_;
  std::unique_ptr<DraftPolicy> policy_;
};

}  // namespace coppice
