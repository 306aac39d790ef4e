// One step of a text: a tree is grown, judged, committed and accounted for.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/step_seconds.h"
#include "drafting/draft_runner.h"
#include "engine/text_run.h"
#include "verify/target_runner.h"

namespace coppice {

/// While it lives, the engine is locked and does nothing else. Whatever it took and did not commit
/// is free when it ends. Without a tree, the text's last token is judged alone: a plain step.
class Step {
 public:
  /// Of the step's noise only this much is said before the tree: it is used up even if the step
  /// fails.
  explicit Step(TextRun& text);

  void grow();
  /// The target's pass, the verdict, and who wants to know of it. False: too few KV slots.
  bool judge();
  /// What was judged.
  TargetRows& target() { return pass_->text(); }
  /// The text gains the accepted path and the bonus token.
  void commit();
  /// What it brought, what it took, and what is learned from it.
  void account();

 private:
  void note_logprobs();
  void note_logprob(std::int32_t node, TokenId token);
  void show();
  bool disturbed() const;

  TextRun& text_;
  Engine::Impl& engine_;
  StepKey key_;
  StepSeconds seconds_;
  double began_, began_cpu_;   ///< on the clock, and of this thread's processor time
  std::int64_t taken_before_;  ///< times that others had taken a processor from this process
  DraftRunner::Step draft_;    ///< null in a plain step
  TargetRunner::Pass pass_;
};

}  // namespace coppice
