#include "study/replay/children.h"

#include <algorithm>

namespace coppice::study {

ChildTable::ChildTable(std::span<const std::uint32_t> first_entry,
                       std::span<const std::uint16_t> rank, std::span<const float> draft,
                       std::span<const std::uint16_t> leads_to) {
  const auto unranked = std::count(rank.begin(), rank.end(), no_rank);
  children_.resize(rank.size() - static_cast<std::size_t>(unranked));
  first_.reserve(first_entry.size());
  first_.push_back(0);
  for (std::size_t node = 0; node + 1 < first_entry.size(); ++node) {
    const std::uint32_t first = first_.back();
    std::uint32_t count = 0;
    for (std::size_t e = first_entry[node]; e < first_entry[node + 1]; ++e) {
      if (rank[e] == no_rank) continue;
      const auto entry = static_cast<std::uint16_t>(e - first_entry[node]);
      children_[first + rank[e]] = {draft[e], entry, leads_to[e]};
      ++count;
    }
    first_.push_back(first + count);
  }
}

}  // namespace coppice::study
