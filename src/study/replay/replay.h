// Policies, sizes and acceptance rules judged anew over recorded distributions, without the models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coppice.h"
#include "drafting/policy.h"
#include "drafting/tree_part.h"
#include "engine/tree_plan.h"
#include "kernels/cpu/workers.h"
#include "study/figures/table.h"
#include "study/replay/recording.h"
#include "study/replay/sources.h"
#include "study/statistics.h"

namespace coppice::study {

struct ReplayedStep {
  std::int32_t position = 0;         ///< of the recorded text
  std::int32_t accepted_length = 1;  ///< the bonus token included
  /// As a run's where the policy's shape is fixed, whatever is on record; else of what could be
  /// grown.
  std::int32_t tree_size = 0;
  std::int32_t draft_passes = 0;
  bool complete = true;      ///< growth asked for nothing that was not recorded
  bool ended_short = false;  ///< the accepted path ended where it asked for more
};

/// Replays texts under one setting. What grows trees and what judges them is what an engine uses:
/// make_policy() and the rules of verify/acceptance.h, over a RecordedDraft and a RecordedTarget.
///
/// A step at position t that accepts L tokens (bonus included) is followed by one at t + L. The
/// first is at position 1: a text's first token comes with its prompt and is no step's. Only where
/// the prompt is a single token is there nothing for it to come with, and the first step is at 0.
/// At temperature 0 and under coupled acceptance the text that a run writes is the recorded one,
/// so that the replay makes the run's very steps where nothing that it asks for is missing. Under
/// rejection the recorded text stands for the one that the steps would have written: both are
/// drawn from the target's law, but what the next step meets is then independent of what this one
/// drew. Children are the recorded draws, the same for all settings; judging has fresh noise.
///
/// Approximate are, beside that, steps that ask for nodes which were not recorded, and the judging
/// of third and later children (local_vocabulary).
class Replayer {
 public:
  /// Of the walk with this seed, in order; steps of several walks come interleaved.
  using Visit = std::function<void(std::uint64_t seed, const ReplayedStep& step)>;

  /// `options`: policy, its own options, acceptance; of a fixed size, for costs are not recorded.
  /// All that bears on distributions comes from the recording, which must outlive this object.
  /// Throws Error(usage) for what generate() refuses, for automatic sizes, and for policy none.
  Replayer(const Recording& recording, const GenerateOptions& options);
  /// One that makes the same steps, for another thread. The tree is not planned anew.
  Replayer(const Replayer& like);
  Replayer& operator=(const Replayer&) = delete;
  ~Replayer();

  /// One walk over a text. `seed` is of judging under rejection; all other noise is the
  /// recording's.
  std::vector<ReplayedStep> replay(const RecordedText& text, std::uint64_t seed);
  /// Walks with seeds first_seed, first_seed + 1, ..., each the same as by itself. Where walks come
  /// to the same position, its tree is grown once.
  void replay(const RecordedText& text, std::uint64_t first_seed, std::uint64_t seeds,
              const Visit& visit);

  const GenerateOptions& options() const { return setting_.options; }
  /// Whether sizes and passes depend on the text's end alone.
  bool has_fixed_shape() const { return setting_.fixed_shape; }

 private:
  struct Setting {
    GenerateOptions options;
    ChildDraw draw;
    std::int64_t local_vocab;
    TreePlan plan;
    GrowthLimits limits;
    bool fixed_shape;
  };

  static Setting setting_of(const Recording& recording, const GenerateOptions& options);
  Replayer(const Recording& recording, Setting setting);
  void grow(const RecordedText& text, std::int32_t position);
  void leave_out_stand_ins();
  ReplayedStep judge(const RecordedText& text, std::int32_t position, std::uint64_t seed);

  const Recording& recording_;
  Setting setting_;
  std::unique_ptr<DraftPolicy> policy_;
  std::unique_ptr<AcceptanceRule> rule_;
  RecordedDraft draft_;
  RecordedTarget target_;
  TokenTree tree_;                      ///< what can be judged of the grown tree
  std::int32_t size_ = 0;               ///< of the grown tree
  TokenTree grown_;                     ///< scratch: with its stand-ins
  std::vector<std::int32_t> recorded_;  ///< scratch: nodes of grown_ without them
  TreePart part_;
  Verdict verdict_;
  std::vector<std::int32_t> next_;  ///< by walk: the position of its next step
};

// A setting replayed over all texts of a recording: the row of a table.

struct ReplayRow {
  std::string policy, acceptance;   ///< acceptance: "greedy" at temperature 0
  std::int32_t requested_size = 0;  ///< 0: as the policy's tree or widths say
  double temperature = 0.0;
  std::int64_t steps = 0;
  /// Tokens judged good per step, bonus included: a ratio of sums, its interval by bootstrap over
  /// prompts.
  Estimate accepted_length;
  Estimate accepted_share;        ///< accepted draft tokens of all drafted
  bool fixed_shape = false;       ///< the policy's: the next two are then a run's own
  double draft_passes = 0.0;      ///< per step; else of what could be grown
  double tree_size = 0.0;         ///< likewise
  double unrecorded_share = 0.0;  ///< of steps whose tree wants nodes that are not on record
  double short_share = 0.0;       ///< of steps whose accepted path ended at such a place
};

/// Replays every text `seeds` times (seeds 0, 1, ...; once where the noise is the recording's).
/// `stop` is asked between texts, by one thread at a time. `workers`: none means this thread alone;
/// the row is the same for any number. Throws Error(usage) as Replayer does.
ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop = {}, cpu::Workers* workers = nullptr);

/// For people.
Table replay_table(const std::vector<ReplayRow>& rows);
/// All figures, for programs.
Table replay_csv(const std::vector<ReplayRow>& rows);

}  // namespace coppice::study
