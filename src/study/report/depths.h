// How deep accepted paths reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "study/statistics.h"

namespace coppice::study {

/// Acceptance at one depth d of a setting's trees, from 1: d draft tokens accepted one after the
/// other.
struct DepthRate {
  /// Target passes whose accepted path reached depth d - 1, without those whose text ended there.
  std::int64_t before = 0;
  std::int64_t reached = 0;  ///< and d
  Estimate share;            ///< `reached` of all passes; a pass without a tree reaches nothing
  Estimate given;            ///< `reached` of `before`
};

/// Counts, by prompt, the target passes whose accepted path reached each depth.
class DepthCounts {
 public:
  explicit DepthCounts(std::size_t prompts)
      : reached_(1, Values(prompts, 0.0)), ended_(1, Values(prompts, 0.0)) {}
  /// Adds a pass over a text of the prompt at that place that accepted so many draft tokens.
  /// `ended`: the last of them ended the text, so that nothing deeper could be accepted.
  void add(std::size_t prompt, std::int32_t accepted, bool ended = false);
  /// Returns the depths that some pass reached, the first at 0. `resampling`: of the same prompts.
  std::vector<DepthRate> rates(const Resampling& resampling) const;

 private:
  std::vector<Values> reached_;  ///< [depth][prompt]; all passes reach depth 0
  std::vector<Values> ended_;    ///< of these, the passes that could go no deeper
};

}  // namespace coppice::study
