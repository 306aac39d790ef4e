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
  /// Counts the text among those of a step; `ready`: the draft has seen it, or will not.
  void join(DraftOutlook::Batch& batch, const SequenceState& state, std::int32_t tokens_left,
            bool ready) const;
  /// Whether the draft is to be prefilled before the step of that batch. From then on it is, until
  /// forget_draft(). A scout's draft will see the end of the text alone.
  bool begins(DraftOutlook::Batch& batch, SequenceState& state, std::int32_t tokens_left);
  /// Whether it is, or was. Not of a scout that has found out: it goes on as the others do.
  bool begun() const { return begin_ != DraftOutlook::Begin::later; }
  /// Whether the text went on without it for a step.
  bool was_put_off() const { return put_off_; }
  /// A pass over prompts, of `pass_rows` in all, took this long by the prompt's share; 0 rows: it
  /// says nothing of later ones.
  void note_prefill(const DraftPrompt& prompt, double seconds, double pass_rows);
  /// The draft has been prefilled, as far as there were slots: else steps will be plain.
  void begin(const DraftPrompt& prompt);
  /// Its KV was given up, or is not kept up to date.
  void forget_draft() { begin_ = DraftOutlook::Begin::later; }
  /// Nodes of each tree if that was asked for; 0: as many as pay, or none.
  std::int32_t fixed_size(const SequenceState& state, std::int32_t tokens_left) const;
  /// Before a step: what this text will bring into it.
  void join(Company& company, const SequenceState& state) const;
  /// Bounds of a step's tree, when all of its texts have joined, of which `tokens_left` tokens at
  /// most can be used and which has at most `room` nodes; nothing: a plain step. They depend on
  /// what is known before the step alone.
  std::optional<GrowthLimits> plan(const SequenceState& state, std::int32_t tokens_left,
                                   std::int32_t room, const Company& company);
  /// Grows the trees. Its own; not for a text that never speculates.
  DraftPolicy& policy() { return *policy_; }

  /// What a judged step tells; `draft` is null where this text was plain.
  void learn(const TokenTree& tree, const Verdict& verdict, DraftStep* draft, const StepWork& work);
  /// Whether sizes follow the clock.
  bool asks_for_the_clock() const { return auto_size_ != nullptr && follows_the_clock(); }

  /// At a text's end, from its finished statistics.
  void learn_pair(const Statistics& statistics);

  /// What positions are valued by; null if it is nothing that is learned.
  const AcceptanceCalibration* calibration() const;
  const DraftRunner::Setting& setting() const { return setting_; }
  /// As in Statistics: given, or what was learned comes to.
  double draft_temperature() const;

 private:
  bool follows_the_clock() const { return !engine_.costs_are_saved; }
  void learn_belief(const TokenTree& tree, const Verdict& verdict, DraftSampler& sampler);

  Engine::Impl& engine_;
  const SettledRequest& request_;
  DraftRunner::Setting setting_;
  std::optional<BeliefTemperature> belief_;  ///< learned
  std::unique_ptr<AutoSize> auto_size_;
  UsualStep usual_;  ///< of a text whose sizes are given
  std::unique_ptr<AcceptanceCalibration> calibration_;
  std::unique_ptr<DraftPolicy> policy_;
  DraftOutlook::Begin begin_ = DraftOutlook::Begin::later;
  bool put_off_ = false;
  std::int32_t scouted_ = 0;  ///< steps as a scout, and one; 0: it was none
};

}  // namespace coppice
