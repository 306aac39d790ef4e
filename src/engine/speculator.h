// How one sequence speculates: its policy, and what the verdicts have taught it.
#pragma once

#include <memory>
#include <optional>

#include "drafting/belief_temperature.h"
#include "drafting/calibration.h"
#include "drafting/lookup.h"
#include "drafting/ruled_proposer.h"
#include "engine/settled_request.h"
#include "models/draft_gaps.h"
#include "sizing/batch_sizer.h"
#include "sizing/sequence_sizer.h"

namespace coppice {

class Speculator {
 public:
  /// All outlive this. `index`: the sequence's own, if it is kept from one call to the next.
  Speculator(Engine::Impl& engine, const SettledRequest& request, TextIndex* index = nullptr);

  /// Whether the draft can go on from here: not past its own context, and not over tokens that it
  /// has no vocabulary row for.
  bool can_follow(const SequenceState& state) const;
  /// Whether trees have children without the draft.
  bool proposes() const { return lookup_.has_value() || ruled_.has_value(); }
  /// Counts the sequence among those of a step that asks which drafts begin, and what it lacks;
  /// `ready`: the draft has seen it, or will not.
  void join(DraftStartPolicy::Batch& batch, DraftGaps& gaps, const SequenceState& state,
            std::int32_t tokens_left, bool ready) const;
  /// Whether the draft is to be prefilled before the step of that batch, all of which was counted.
  /// From then on it is, until forget_draft(). A probe's draft will see the end of the sequence
  /// alone.
  bool begins(DraftStartPolicy::Batch& batch, const DraftGaps& gaps, SequenceState& state,
              std::int32_t tokens_left);
  /// Whether it is, or was. Not of a probe that has found out: it goes on as the others do.
  bool begun() const { return begin_ != DraftStartPolicy::Begin::later; }
  /// Whether the sequence went on without it for a step.
  bool was_put_off() const { return put_off_; }
  /// A pass over prompts, of `pass_rows` in all, took this long by the prompt's share; 0 rows: it
  /// says nothing of later ones.
  void note_prefill(const DraftPrompt& prompt, double seconds, double pass_rows);
  /// The draft has been prefilled, as far as there were slots: else steps will be plain.
  void begin(const DraftPrompt& prompt);
  /// Its KV was given up, or is not kept up to date.
  void forget_draft() { begin_ = DraftStartPolicy::Begin::later; }
  /// Nodes of each tree if that was asked for; 0: as many as pay, or none.
  std::int32_t fixed_size(const SequenceState& state, std::int32_t tokens_left) const;
  /// Whether sizes are chosen step by step.
  bool adapts() const { return sizer_ != nullptr; }
  /// Whether its trees can grow together with others', at common prices.
  bool can_grow_jointly() const { return by_costs_; }
  /// Whether what is drawn stays: sequences with the same noise must not grow together.
  bool draws_for_good() const { return setting_.draw == AcceptanceRule::rejection; }
  /// Nodes of its trees of late, on average.
  double usual_nodes() const { return steps_ > 0.0 ? nodes_ / steps_ : 0.0; }
  /// Bounds of a step's tree of at most `room` nodes, of which `tokens_left` tokens at most can be
  /// used; nothing: a plain step. For a sequence whose sizes are given. They depend on what is
  /// known before the step alone. `drafts`: the draft has seen the sequence.
  std::optional<GrowthLimits> plan(const SequenceState& state, std::int32_t tokens_left,
                                   std::int32_t room, bool drafts);
  /// Returns what BatchSizer::begin() has to know of a sequence whose sizes are chosen from costs,
  /// in a step of `texts` sequences in all; room and tokens as for plan().
  BatchSizer::Text sizing(const SequenceState& state, std::int32_t tokens_left, std::int32_t room,
                          std::int32_t texts, bool apart, bool drafts);
  /// Then bounds its tree; nothing: a plain step.
  std::optional<GrowthLimits> plan(const BatchSizer::Text& sequence, Grower& growth);
  /// Grows the trees. Its own; not for a sequence that never speculates.
  DraftPolicy& policy() { return *policy_; }

  /// Learns what a judged step tells. Acceptance is that of all nodes that were judged; what
  /// speculation wins is by the tokens that stay, `kept` (RunningSequence::tokens_to_end()).
  /// `draft` is null where it had no part.
  void learn(const TokenTree& tree, const Verdict& verdict, std::int32_t kept, DraftStep* draft,
             const StepWork& work);
  /// Whether sizes follow the clock.
  bool asks_for_the_clock() const { return sizer_ != nullptr && follows_the_clock(); }

  /// At a sequence's end, from its finished statistics.
  void learn_pair(const Statistics& statistics);
  /// Likewise, from its answer: for sequences that come after.
  void leave_answer(std::span<const TokenId> answer);

  /// What positions are valued by; null if it is nothing that is learned.
  const AcceptanceCalibration* calibration() const;
  const DraftRunner::Setting& setting() const { return setting_; }
  /// As Used::draft_temperature: given, or what was learned comes to.
  double draft_temperature() const;

 private:
  /// A policy that wants nodes evaluated does so by the draft, if it has one.
  bool can_go_without_draft() const { return proposes() && (by_costs_ || !request_.has_draft); }
  Proposer* proposer() {
    if (ruled_) return &*ruled_;
    return lookup_ ? &*lookup_ : nullptr;
  }
  bool follows_the_clock() const { return !engine_.costs_are_saved; }
  GrowthLimits limits(const SequenceState& state, std::int32_t tokens_left, std::int32_t room,
                      bool drafts);
  void learn_belief(const TokenTree& tree, const Verdict& verdict, DraftSampler& sampler);

  Engine::Impl& engine_;
  const SettledRequest& request_;
  DraftRunner::Setting setting_;
  std::optional<BeliefTemperature> belief_;  ///< learned
  std::unique_ptr<SequenceSizer> sizer_;
  double steps_ = 0.0, nodes_ = 0.0;  ///< of steps with trees, discounted
  std::optional<LookupProposer> lookup_;
  std::optional<RuledProposer> ruled_;  ///< in front of it, where there is a constraint
  std::unique_ptr<AcceptanceCalibration> calibration_;
  std::unique_ptr<DraftPolicy> policy_;
  bool by_costs_ = false;  ///< its trees go by costs
  DraftStartPolicy::Begin begin_ = DraftStartPolicy::Begin::later;
  bool put_off_ = false;
  std::int32_t probed_ = 0;  ///< steps as a probe, and one; 0: it was none
};

}  // namespace coppice
