// Sequoia's trees, planned for the acceptance that a recording itself shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/replay/recording.h"

namespace coppice::study {

/// The settings of a policy by which the texts of a recording are replayed.
struct PlannedSettings {
  std::vector<GenerateOptions> settings;  ///< one, or one for each part of the texts
  std::string planned_for;                ///< sequoia: what its trees were planned for, in words

  /// Returns the part of the recording's text at that place: every text is in another part than the
  /// one before.
  std::size_t place_of(std::size_t text) const { return text % settings.size(); }
};

/// Completes `options`. Sequoia without a tree or vector of its own is planned for acceptance by
/// rank as it is counted on the recording, under the same rule, with `seeds` walks over each text:
/// the texts are parted in up to five, and the tree for each part is planned for what the others
/// show, so that no text is replayed with a tree that was fitted to it. A recording of one text has
/// no others, and says so. Other policies stay as they are. Throws Error(usage) as Replayer does.
PlannedSettings planned_settings(const Recording& recording, const GenerateOptions& options,
                                 std::int32_t seeds, const std::function<bool()>& stop);

}  // namespace coppice::study
