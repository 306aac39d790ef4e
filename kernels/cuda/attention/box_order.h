// The order of a tail that ranges (range_plan.h) copy with the fewest instructions.
#pragma once

#include <span>
#include <vector>

#include "kernels/visible_kv.h"

namespace coppice {

/// Whether it is made of whole boxes of range_box neighbouring slots, one behind the other, if its
/// slots follow one another.
bool is_boxed(const KvSegment& segment);

/// Puts the boxed parts of former passes' segments before everything else, each in the order that
/// `tail` has. So boxes of a row tile's texts lie one behind the other, whatever length the texts
/// have, and what is left of them is copied together with the pass's own tokens. Between the parts
/// of a segment lies the rest of the tail. Returns false, and leaves `ordered` as it is, if there
/// are no two segments of former passes, and so nothing to gain.
bool order_by_boxes(std::span<const KvSegment> tail, std::vector<KvSegment>& ordered);

}  // namespace coppice
