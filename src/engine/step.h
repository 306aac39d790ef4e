// One step of sequences that share its passes: trees are grown, judged, committed and accounted
// for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/processor_watch.h"
#include "base/random.h"
#include "base/step_seconds.h"
#include "drafting/draft_runner.h"
#include "drafting/grow.h"
#include "engine/running_sequence.h"
#include "engine/step_plan.h"
#include "engine/watched_passes.h"
#include "verify/target_runner.h"
#include "verify/tree_judge.h"

namespace coppice {

/// While it lives, the engine is locked and does nothing else. Whatever it took and did not commit
/// is free when it ends. What concerns one sequence alone fails for that sequence alone
/// (RunningSequence::failure); what any call throws concerns all, and nothing of any sequence has
/// changed.
class Step {
 public:
  /// Reserves this step's random numbers; they count as used even if the step fails. The plan
  /// outlives this.
  Step(Engine::Impl& engine, TreeJudge& judge, const StepPlan& plan);

  /// Grows all trees in common rounds. A sequence without limits has its root alone: a plain step.
  void grow();
  /// Runs the target pass, verifies every tree, calls the observer. Returns false if KV slots ran
  /// out.
  bool judge();
  /// Returns the target's rows of a sequence with a verdict; `index` as in the plans.
  TargetRows& target(std::size_t index) { return pass_->text(parts_[index].in_pass); }
  /// Has all sizes learn from the step; the sequences gain their accepted paths and bonus tokens.
  /// Once one has, a failure is that of a sequence.
  void commit();
  /// Records what the step brought to each sequence and what it took; the sequence learns from it.
  void account();

 private:
  /// What a sequence has in the step.
  struct Part {
    const SequencePlan* plan;
    StepKey key = {};
    DraftRunner::Step draft = nullptr;  ///< null in a plain step
    StepSeconds seconds = {};
    std::size_t in_pass = 0;  ///< its index among the pass's sequences
    double share = 0.0;       ///< of the target pass's rows

    RunningSequence& sequence() const { return *plan->sequence; }
    /// Rows of the target's pass.
    std::int32_t rows() const {
      return plan->prefill_rows + (plan->judged ? sequence().tree.nodes() : 0);
    }
    bool takes_part() const { return sequence().failure == nullptr; }
    /// Neither a part of a prefill nor the token that comes with its end.
    bool is_step() const { return plan->judged && plan->prefill_rows == 0; }
    void note_logprobs(TargetRows& target) const;
    void note_logprob(TargetRows& target, std::int32_t node, TokenId token) const;
    void commit(TargetRows& target);
    void account(const StepWork& work);
  };

  void observe();
  void show(Part& part);
  bool disturbed() const;

  Engine::Impl& engine_;
  TreeJudge& judge_;
  Grower* common_;
  std::vector<Part> parts_;
  double sequences_ = 0.0;  ///< that are judged
  StepWork work_;
  ProcessorWatch processors_;
  WatchedPasses passes_;
  TargetRunner::Pass pass_;
};

}  // namespace coppice
