#include "kernels/cuda/attention/box_order.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/attention/range_plan.h"

namespace coppice {
namespace {

/// Its slots [begin, end).
KvSegment part(const KvSegment& segment, std::size_t begin, std::size_t end) {
  KvSegment result = segment;
  result.slots = segment.slots.subspan(begin, end - begin);
  result.first_position += static_cast<std::int32_t>(begin);
  return result;
}

/// Where the boxed part begins and ends.
struct Boxes {
  std::size_t begin, end;
};
Boxes boxes_of(const KvSegment& segment) {
  const std::size_t size = segment.slots.size();
  if (!segment.former || size == 0) return {0, 0};
  constexpr auto box = static_cast<std::size_t>(range_box);
  const auto place = static_cast<std::size_t>(std::max(segment.slots.front(), 0)) % box;
  const std::size_t begin = std::min((box - place) % box, size);
  return {begin, begin + (size - begin) / box * box};
}

}  // namespace

bool is_boxed(const KvSegment& segment) {
  const auto [begin, end] = boxes_of(segment);
  return begin == 0 && end > 0 && end == segment.slots.size();
}

bool order_by_boxes(std::span<const KvSegment> tail, std::vector<KvSegment>& ordered) {
  const auto former = std::count_if(tail.begin(), tail.end(),
                                    [](const KvSegment& segment) { return segment.former; });
  if (former < 2) return false;
  ordered.clear();
  for (const KvSegment& segment : tail) {
    const auto [begin, end] = boxes_of(segment);
    if (begin < end) ordered.push_back(part(segment, begin, end));
  }
  for (const KvSegment& segment : tail) {
    const auto [begin, end] = boxes_of(segment);
    if (begin > 0 && begin < end) ordered.push_back(part(segment, 0, begin));
    const std::size_t rest = begin < end ? end : 0;
    if (rest < segment.slots.size()) ordered.push_back(part(segment, rest, segment.slots.size()));
  }
  return true;
}

}  // namespace coppice
