// What a workload's passes would take, by the cost table and the clock.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/static_tree.h"
#include "engine/policy_options.h"
#include "sizing/cost_table.h"

namespace coppice::study {

// What a policy's steps would have asked of both models, counted from other steps.

/// Passes by their rows, and the tokens that came of them.
struct Workload {
  double steps = 0.0;
  double tokens = 0.0;                           ///< accepted ones and bonus tokens
  double drafted = 0.0;                          ///< draft tokens
  std::map<std::int32_t, double> verify_passes;  ///< by rows, the root included
  std::map<std::int32_t, double> draft_passes;

  double accepted_length() const { return steps > 0.0 ? tokens / steps : 0.0; }
  void add_step(double accepted_tokens, std::int32_t nodes,
                std::span<const std::int32_t> draft_rows);
};

/// The step as dyspec with `size` draft tokens would have done it, from one with as many or more.
/// A tree's nodes stand in the order in which Algorithm 1 adds them and its noise goes by place, so
/// the smaller tree is the first `size` nodes, and its accepted path ends where the larger one's
/// leaves them. It evaluates in round r the nodes of depth r - 1 that a child of theirs, worth
/// their path's probability, could still stand behind in the tree as known by then.
void add_dyspec(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
                std::int32_t size);
/// The same for a chain of `length`, from a longer one.
void add_chain(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               std::int32_t length);
/// The same for a fixed tree, from one that holds it (see holds()).
void add_fixed(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               const TreeShape& shape);
/// Whether every node of `part`, as a path of ranks, is one of `whole`.
bool holds(const TreeShape& whole, const TreeShape& part);
/// `steps` steps with a fixed tree of which `accepted_length` tokens come on average.
void add_shape(Workload& workload, const TreeShape& shape, double accepted_length, double steps);

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
