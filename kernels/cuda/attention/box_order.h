// The order of a tail that ranges (range_plan.h) copy with the fewest instructions.
#pragma once

#include <span>
#include <vector>

#include "kernels/visible_kv.h"

namespace coppice {

/// Whether it begins and ends where boxes of range_box neighbouring slots do, if its slots follow
/// one another; only the first one is looked at.
bool is_boxed(const KvSegment& segment);

/// Puts the boxed parts of former passes' segments before everything else, each in the order that
/// `tail` has. So boxes of a row tile's texts lie one behind the other, whatever length the texts
/// have, and what is left of them is copied together with the pass's own tokens. A segment that is
/// cut has tokens of others between its parts. Returns false, and leaves `ordered` as it is, if
/// there are fewer than two segments of former passes, and so nothing to gain.
bool order_by_boxes(std::span<const KvSegment> tail, std::vector<KvSegment>& ordered);

}  // namespace coppice
