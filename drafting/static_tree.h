// Fixed trees: one shape for every step, as Medusa's and EAGLE's published trees are given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rank_path.h"
#include "drafting/policy.h"

namespace coppice {

/// The shape of a tree: who is whose child of which rank, and no tokens.
///
/// Node 0 is the root. Nodes stand in breadth-first order: no node before a shallower one,
/// siblings in rank order. So the first nodes of a shape, however many, are a shape.
class TreeShape {
 public:
  /// Most nodes of a shape, the root not counted.
  static constexpr std::int32_t most_nodes = 4096;

  /// The root alone.
  TreeShape() = default;

  /// The shape with these nodes, at most most_nodes, the root not among them. Every prefix of a
  /// path must be there, and every lower rank of a sibling. Order: by depth, then as listed; but
  /// a node listed before a sibling of lower rank comes right after that sibling.
  /// Throws Error(usage), which names the path at fault and its place in the list: the empty
  /// path, a negative rank, a path given twice, a prefix or a lower rank missing; or too many.
  explicit TreeShape(std::span<const RankPath> paths);

  /// Appends the next child of a node and returns its index. Throws Error(usage): no such
  /// parent, a node of that parent's depth + 1 would stand behind a deeper one, too many nodes.
  std::int32_t add(std::int32_t parent_node);

  /// Nodes, the root not counted.
  std::int32_t size() const { return static_cast<std::int32_t>(parent_.size()) - 1; }
  /// Deepest node's edges below the root.
  std::int32_t height() const { return depth_.back(); }
  /// By node from 0 (the root: parent -1, rank 0, depth 0) to size().
  std::int32_t parent(std::int32_t node) const { return parent_[static_cast<std::size_t>(node)]; }
  std::int32_t rank(std::int32_t node) const { return rank_[static_cast<std::size_t>(node)]; }
  std::int32_t depth(std::int32_t node) const { return depth_[static_cast<std::size_t>(node)]; }
  /// Number of a node's children.
  std::int32_t children(std::int32_t node) const {
    return children_[static_cast<std::size_t>(node)];
  }
  /// All nodes but the root, in the shape's order.
  std::vector<RankPath> paths() const;

  bool operator==(const TreeShape&) const = default;

 private:
  std::vector<std::int32_t> parent_{-1}, rank_{0}, depth_{0}, children_{0};
};

/// Reads {"paths": [[0], [0, 0], [1], ...]}; other keys are ignored. Throws Error(failure), which
/// names the file and the place in it: no such file, no JSON, or no shape (TreeShape's rules).
TreeShape read_tree_shape(const std::filesystem::path& file);

/// The same shape in every step, its children drawn in rank order, one draft pass for every
/// level that has children.
///
/// Takes, of a shape larger than limits.max_size or deeper than limits.max_depth, the first
/// max_size nodes in the shape's order (by depth, then by place in the list) whose depth the limit
/// admits: their parents and earlier siblings are always among them. What the draft has no child
/// for, because its distribution is exhausted, is left out with all below it, and so is a
/// position of value under limits.min_value; nothing takes its place.
std::unique_ptr<DraftPolicy> make_static_policy(TreeShape shape, std::string name = "static");

}  // namespace coppice
