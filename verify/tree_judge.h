// One step's judgement: the target's pass over a tree and the rule that reads it.
#pragma once

#include <memory>
#include <span>

#include "base/draft_evidence.h"
#include "base/step_seconds.h"
#include "kernels/device_sampler.h"
#include "verify/acceptance.h"
#include "verify/target_runner.h"

namespace coppice {

class TreeJudge {
 public:
  virtual ~TreeJudge() = default;
  /// Runs the target over `tree` and judges it. `draft`: what its children were drawn from, nullptr
  /// for a tree that is a root alone. Null, with nothing changed, when the target's pool has too
  /// few slots. Adds to `seconds` what the pass, the depth-first order before it, and judging took.
  [[nodiscard]] virtual TargetRunner::Pass judge(SequenceState& state, const TokenTree& tree,
                                                 const SamplingParams& params,
                                                 const DraftEvidence* draft, const StepKey& key,
                                                 Verdict& verdict, StepSeconds& seconds) = 0;
};

/// Judges on the host, by `rule`.
std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target,
                                           std::unique_ptr<AcceptanceRule> rule);
/// Judges where the logits are, in one launch behind the pass.
std::unique_ptr<TreeJudge> make_device_judge(TargetRunner& target, DeviceSampler& sampler,
                                             DeviceNoise rule);

}  // namespace coppice
