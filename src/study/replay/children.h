// The children of recorded nodes, laid out as growth asks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace coppice::study {

/// Place of an entry that is not among the children drawn.
inline constexpr std::uint16_t no_rank = 0xffff;

/// Children of a position's nodes in one of the two orders, by node, then by rank. What growth
/// reads of a node lies together: recordings are larger than caches.
class ChildTable {
 public:
  struct Child {
    float draft = 0.0f;       ///< D
    std::uint16_t entry = 0;  ///< of its parent
    /// That it leads to; 0: the next position's root, for the text goes on with this child.
    std::uint16_t node = no_node;
  };
  static constexpr std::uint16_t no_node = 0xffff;  ///< none is recorded

  ChildTable() = default;
  /// `first_entry`: [nodes + 1] offsets into the others, which are by entry: its rank (those of a
  /// node are 0, 1, ..., or no_rank), D, and the node that it leads to, as in Child.
  ChildTable(std::span<const std::uint32_t> first_entry, std::span<const std::uint16_t> rank,
             std::span<const float> draft, std::span<const std::uint16_t> leads_to);

  std::span<const Child> of(std::int32_t node) const {
    const auto n = static_cast<std::size_t>(node);
    return {children_.data() + first_[n], first_[n + 1] - first_[n]};
  }

 private:
  std::vector<std::uint32_t> first_;  // [nodes + 1] offsets into the children
  std::vector<Child> children_;
};

}  // namespace coppice::study
