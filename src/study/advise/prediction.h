// What a workload's passes would take, by the cost table and the clock.
#pragma once

#include <cstdint>
#include <map>

#include "engine/policy_options.h"
#include "sizing/cost_table.h"
#include "study/advise/workload.h"

namespace coppice::study {

/// Clock over cost table by the rows of a pass: linear between what was seen, constant beyond.
class ClockRatio {
 public:
  /// Adds a pass, or a few of `rows` rows on average.
  void add(std::int32_t rows, double clock_seconds, double table_seconds);
  /// 1 where nothing was added.
  double at(std::int32_t rows) const;

 private:
  struct Sum {
    double clock = 0.0, table = 0.0;
  };
  std::map<std::int32_t, Sum> seen_;  ///< by rows
};

/// How the clock of sampled steps compares with the cost table.
struct ClockCalibration {
  ClockRatio plain, verify, draft;
  double step_seconds = 0.0;  ///< of a plain step beside the pass
  double node_seconds = 0.0;  ///< more for every draft token: drawing, ordering, judging
};

/// One setting's prediction. Seconds are those of a step.
struct Prediction {
  Policy policy = Policy::none;
  std::int32_t tree_size = 0;
  std::int32_t tree_depth = 0;  ///< sequoia's bound
  double accepted_length = 1.0;
  double nodes = 0.0;  ///< draft tokens a step
  double draft_seconds = 0.0, verify_seconds = 0.0, other_seconds = 0.0;
  double tokens_per_second = 0.0;  ///< prefill not counted
  double speedup = 1.0;            ///< over plain decoding's prediction
};

/// Prices a workload at a text of `prefix` tokens. More rows never cost less, in the target's
/// passes not less than plain decoding's one row: what the clock says to the contrary is noise.
Prediction predict(const Workload& workload, const CostTable& costs, std::int32_t prefix,
                   const ClockCalibration& calibration);
Prediction predict_plain(const CostTable& costs, std::int32_t prefix,
                         const ClockCalibration& calibration);

/// Seconds of passes, by rows and counts. `least`: what no pass costs less than.
double priced(const std::map<std::int32_t, double>& passes, const PassCosts& costs,
              std::int32_t prefix, const ClockRatio& ratio, double least = 0.0);

}  // namespace coppice::study
