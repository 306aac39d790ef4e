// What a step's work costs now, against what the table says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/step_seconds.h"
#include "sizing/cost_table.h"
#include "sizing/step_work.h"

namespace coppice {

/// Parts of a step whose costs the clock follows apart from one another. `joint`: a target's pass
/// over several texts, with trees or without. Apart, a batch in which some text always speculates
/// would never learn what plain decoding costs it, and hold what is dear in all such passes against
/// speculation.
enum class Work { plain, verify, first_draft, draft, host, joint };
/// What the target's pass of a step is, plain or with trees, by its texts.
constexpr Work plain_pass(std::int32_t texts) { return texts == 1 ? Work::plain : Work::joint; }
constexpr Work tree_pass(std::int32_t texts) { return texts == 1 ? Work::verify : Work::joint; }

/// Learns clock / table from steps. The logarithm of that ratio is a sum: one term for the whole
/// machine, which others may use as well; one for each kind of work; and for verify and joint
/// passes one for their number of rows, alike for near ones. A Kalman filter follows these terms.
/// What has not been seen for long becomes uncertain again, the machine's term soon, the others in
/// the course of many steps.
class CostCorrection {
 public:
  CostCorrection();

  /// Before the first step: the machine may be far from what the table was measured on, so that its
  /// first steps count for much.
  void doubt_machine();

  /// Returns what the clock takes on average, as a multiple of the table's seconds.
  double factor(Work work, std::int32_t rows = 1) const;
  /// How far the factor may be off, as a logarithm's standard deviation.
  double spread(Work work, std::int32_t rows = 1) const;
  /// The same, less what one may hope for if such work has not been seen lately: a price that is
  /// too high would else never be found out.
  double optimistic_factor(Work work, std::int32_t rows = 1) const;

  /// One step's part: seconds by the clock and by the table, both above 0.
  void observe(Work work, std::int32_t rows, double seconds, double by_table);
  /// Between steps.
  void end_step();

  /// A step of one text or of several: what its passes took by the clock, and the table it is held
  /// against. `disturbed`: others took a processor from it meanwhile. By time slices, which are
  /// longer than a small model's passes: these are hit rarely and hard, dear ones more often, and
  /// all alike in the end, which changes no size. So such steps are not looked at, unless there are
  /// many in a row: then passes are longer than slices. Nor are steps that computed other texts'
  /// prompts, whose rows are not what the table's are.
  void observe_step(const CostTable& costs, const StepWork& work, const StepSeconds& seconds,
                    bool disturbed = false);

 private:
  static constexpr std::size_t kinds = 6;
  /// Rows that have a term of their own; between them it is linear. Finer where trees are small,
  /// and at the ends of the matrix products' row buckets.
  static constexpr std::array<std::int32_t, 22> knots = {
      1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 17, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
  static constexpr std::size_t size = 1 + kinds + knots.size();
  using Vector = std::array<double, size>;

  /// The terms that are summed for a kind of work: places and weights.
  struct Terms {
    std::array<std::size_t, 4> place;
    std::array<double, 4> weight;
    std::size_t count;
  };
  static Terms terms(Work work, std::int32_t rows);
  double sum(const Terms& terms) const;

  Vector mean_{};
  std::array<Vector, size> covariance_, prior_;
  Vector memory_;                    ///< what is left of a term after a step
  std::array<double, kinds> noise_;  ///< variance of single observations
  std::int32_t disturbed_ = 0;       ///< steps in a row
};

}  // namespace coppice
