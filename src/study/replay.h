// Policies, sizes and acceptance rules judged anew over recorded distributions, without the models.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "coppice.h"
#include "drafting/policy.h"
#include "study/replay_bounds.h"
#include "study/replay_recording.h"
#include "study/replay_sources.h"

namespace coppice::study {

struct ReplayedStep {
  std::int32_t position = 0;         ///< of the recorded text
  std::int32_t accepted_length = 1;  ///< the bonus token included
  StepBounds bounds;
  std::int32_t tree_size = 0;
  std::int32_t draft_passes = 0;
  bool complete = true;  ///< growth asked for nothing that was not recorded
};

/// Replays texts under one setting. What grows trees and what judges them is what an engine uses:
/// make_policy() and the rules of verify/acceptance.h, over a RecordedDraft and a RecordedTarget.
///
/// A step at position t that accepts L tokens (bonus included) is followed by one at t + L.
/// At temperature 0 and under coupled acceptance the text that a run writes is the recorded one,
/// so that the replay makes the run's very steps where nothing that it asks for is missing. Under
/// rejection the recorded text stands for the one that the steps would have written: both are
/// drawn from the target's law, but what the next step meets is then independent of what this one
/// drew. Children are the recorded draws, the same for all settings; judging has fresh noise.
///
/// Approximate are, beside that, steps that ask for nodes which were not recorded, and the judging
/// of third and later children (LocalVocabulary). StepBounds says how far a step where it stands
/// can be from the models' own.
class Replayer {
 public:
  /// `options`: policy, its own options, acceptance; of a fixed size, for costs are not recorded.
  /// All that bears on distributions comes from the recording, which must outlive this object.
  /// Throws Error(usage) for what generate() refuses, for automatic sizes, and for policy none.
  Replayer(const Recording& recording, const GenerateOptions& options);
  ~Replayer();

  /// One walk over a text. `seed` is of judging under rejection; all other noise is the
  /// recording's.
  std::vector<ReplayedStep> replay(const RecordedText& text, std::uint64_t seed);

  const GenerateOptions& options() const { return options_; }

 private:
  ReplayedStep step(const RecordedText& text, std::int32_t position, const StepKey& key);

  const Recording& recording_;
  GenerateOptions options_;
  GrowthLimits limits_;
  GrowthKind kind_;
  ChildDraw draw_;
  std::unique_ptr<DraftPolicy> policy_;
  NoiseCache noise_;
  std::unique_ptr<AcceptanceRule> rule_;
  RecordedDraft draft_;
  RecordedTarget target_;
  BoundsFinder bounds_;
  TokenTree tree_;
  Verdict verdict_;
};

}  // namespace coppice::study
