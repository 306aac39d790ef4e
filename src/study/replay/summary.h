// A setting replayed over all texts of a recording: the row of a table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/workers.h"
#include "study/replay/replay.h"
#include "study/statistics.h"

namespace coppice::study {

struct ReplayRow {
  std::string policy, acceptance;   ///< acceptance: "greedy" at temperature 0
  std::int32_t requested_size = 0;  ///< 0: as the policy's tree or widths say
  double temperature = 0.0;
  std::int64_t steps = 0;
  /// Tokens judged good per step, bonus included: a ratio of sums, its interval by bootstrap over
  /// prompts.
  Estimate accepted_length;
  double lowest = 0.0, highest = 0.0;  ///< means of the steps' bounds
  Estimate accepted_share;             ///< accepted draft tokens of all drafted
  bool fixed_shape = false;            ///< the policy's: the next two are then a run's own
  double draft_passes = 0.0;           ///< per step; else of what could be grown
  double tree_size = 0.0;              ///< likewise
  double unrecorded_share = 0.0;       ///< of steps whose tree wants nodes that are not on record
  double short_share = 0.0;            ///< of steps whose accepted path ended at such a place
  double doubtful_share = 0.0;         ///< of steps with a decision that it leaves open
  double steps_per_second = 0.0;       ///< of this replay, by the clock
};

/// Replays every text `seeds` times (seeds 0, 1, ...; once where the noise is the recording's).
/// `stop` is asked between texts, by one thread at a time. `workers`: none means this thread alone;
/// all but the clock's figure is the same for any number. Throws Error(usage) as Replayer does.
ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop = {}, cpu::Workers* workers = nullptr);

/// Aligned columns for a terminal; and all figures, comma-separated. Lines end in newlines.
std::string replay_table(const std::vector<ReplayRow>& rows);
std::string replay_csv(const std::vector<ReplayRow>& rows);

}  // namespace coppice::study
