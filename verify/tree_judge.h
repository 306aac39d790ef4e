// One step's judgement: the target's pass over a tree and the rule that reads it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "kernels/device_sampler.h"
#include "verify/acceptance.h"
#include "verify/target_runner.h"

namespace coppice {

/// Where the draft's distributions of a tree lie.
struct DraftEvidence {
  const DistributionTable* host = nullptr;  ///< by TokenTree::source
  /// Row of the device's store, by TokenTree::source; used where `host` is null.
  std::function<std::int32_t(std::int32_t source)> store_row;
};

class TreeJudge {
 public:
  virtual ~TreeJudge() = default;
  /// Runs the target over `tree` and judges it. False, with nothing changed, when the target's
  /// pool has too few slots. After a throw the pass has been abandoned.
  virtual bool judge(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
                     const DraftEvidence& draft, const StepKey& key, Verdict& verdict) = 0;
  /// Wall-clock seconds in the target's pass, and in judging, so far. Where both run on a device
  /// they count as the pass.
  virtual double forward_seconds() const = 0;
  virtual double judging_seconds() const = 0;
};

/// Judges on the host, by `rule`.
std::unique_ptr<TreeJudge> make_host_judge(TargetRunner& target,
                                           std::unique_ptr<AcceptanceRule> rule);
/// Judges where the logits are, in one launch behind the pass.
std::unique_ptr<TreeJudge> make_device_judge(TargetRunner& target, DeviceSampler& sampler,
                                             DeviceNoise rule);

}  // namespace coppice
