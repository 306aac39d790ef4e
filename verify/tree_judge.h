// One step's judgement: the target's pass over trees and the verifiers that read it.
#pragma once

#include <memory>
#include <span>

#include "base/draft_evidence.h"
#include "base/step_seconds.h"
#include "kernels/device_sampler.h"
#include "verify/target_runner.h"
#include "verify/verifier.h"

namespace coppice {

/// One text's tree, and what it is judged by.
struct TextTree {
  SequenceState* state = nullptr;
  const TokenTree* tree = nullptr;  ///< null: `prefill_rows` of a prefill, as in TargetRunner::Text
  SamplingParams params = {};
  AcceptanceRule rule = AcceptanceRule::rejection;
  StepKey key = {};
  /// What its children were drawn from, nullptr for a tree that is a root alone.
  const DraftEvidence* draft = nullptr;
  Verdict* verdict = nullptr;  ///< receives the judgement; null where there is no tree
  std::int32_t prefill_rows = 0;
};

class TreeJudge {
 public:
  virtual ~TreeJudge() = default;
  /// Runs the target over the texts' trees in one pass and judges each by itself. Null, with
  /// nothing changed, when the target's pool has too few slots. Adds to `seconds` what the pass,
  /// the depth-first order before it, and judging took.
  [[nodiscard]] virtual TargetRunner::Pass judge(std::span<const TextTree> texts,
                                                 StepSeconds& seconds) = 0;
};

/// Judges on the host.
std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target, NoiseCache& noise);
/// The same by one verifier, whatever the texts ask for: planted faults.
std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target,
                                           std::unique_ptr<Verifier> verifier);
/// Judges where the logits are, in one launch behind the pass.
std::unique_ptr<TreeJudge> make_device_judge(TargetRunner& target, DeviceSampler& sampler);

}  // namespace coppice
