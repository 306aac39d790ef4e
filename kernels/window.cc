#include "kernels/window.h"

#include <algorithm>
#include <cstddef>

namespace coppice {

void trim_to_window(std::span<const KvSegment> segments, std::span<const std::int32_t> positions,
                    std::int32_t window, std::vector<KvSegment>& trimmed) {
  trimmed.assign(segments.begin(), segments.end());
  if (window == 0) return;
  for (KvSegment& segment : trimmed) {
    if (segment.slots.size() < 2 || segment.q_begin == segment.q_end) continue;
    // Its rows are those of a text, or of a subtree, the least deep anywhere among them.
    const auto rows = positions.subspan(static_cast<std::size_t>(segment.q_begin),
                                        static_cast<std::size_t>(segment.q_end - segment.q_begin));
    const std::int32_t nearest = *std::min_element(rows.begin(), rows.end());
    const std::int64_t unseen = nearest - window_end(segment.first_position, window) + 1;
    const auto size = static_cast<std::int64_t>(segment.slots.size());
    const std::int64_t count = std::clamp<std::int64_t>(unseen, 0, size);
    segment.slots = segment.slots.subspan(static_cast<std::size_t>(count));
    segment.first_position += static_cast<std::int32_t>(count);
  }
}

}  // namespace coppice
