#include "drafting/static_tree.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "drafting/shape_json.h"

namespace coppice {
namespace {

constexpr std::int32_t absent = -1;

std::string too_many(std::size_t nodes) {
  return cat("tree shape: ", nodes, " nodes are more than the ", TreeShape::most_nodes,
             " that a shape may have");
}

// The tree that a list of paths spells. Nodes are numbered as they are found, the root 0.
class PathTree {
 public:
  struct Node {
    std::int32_t parent = absent;
    std::int32_t rank = 0;
    std::size_t depth = 0;
    std::size_t place = 0;  // in the list; once ordered, the last of it and its earlier siblings
    std::vector<std::int32_t> children;
  };

  explicit PathTree(std::span<const RankPath> paths) : paths_(paths), nodes_(1) {
    // Shorter ones first, so that every prefix has been met when it is needed.
    std::vector<std::size_t> order(paths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return paths[a].size() < paths[b].size();
    });
    for (const std::size_t place : order) insert(place);
    for (Node& node : nodes_) order_children(node);
  }

  const Node& node(std::int32_t id) const { return nodes_[static_cast<std::size_t>(id)]; }

  // All nodes but the root in the order that TreeShape(paths) promises.
  std::vector<std::int32_t> breadth_first() const {
    std::vector<std::int32_t> order(nodes_.size() - 1);
    std::iota(order.begin(), order.end(), 1);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const Node &x = node(a), &y = node(b);
      return std::tie(x.depth, x.place, x.rank) < std::tie(y.depth, y.place, y.rank);
    });
    return order;
  }

 private:
  void insert(std::size_t place) {
    const RankPath& path = paths_[place];
    if (path.empty()) refuse(place, "is empty; the root is not listed");
    if (*std::min_element(path.begin(), path.end()) < 0) refuse(place, "has a negative rank");
    std::int32_t parent = 0;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      parent = find(parent, path[i]);
      if (parent == absent) {
        const auto last = path.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        refuse(place, cat("has no parent: ", path_text({path.begin(), last}), " is not listed"));
      }
    }
    const auto id = static_cast<std::int32_t>(nodes_.size());
    if (!index_.emplace(key(parent, path.back()), id).second) refuse(place, "is listed twice");
    nodes_.push_back({parent, path.back(), path.size(), place, {}});
    nodes_[static_cast<std::size_t>(parent)].children.push_back(id);
  }

  void order_children(Node& of) {
    std::sort(of.children.begin(), of.children.end(),
              [&](std::int32_t a, std::int32_t b) { return node(a).rank < node(b).rank; });
    std::size_t place = 0;
    std::int32_t rank = 0;
    for (const std::int32_t id : of.children) {
      Node& child = nodes_[static_cast<std::size_t>(id)];
      if (child.rank != rank) {
        RankPath missing = paths_[child.place];
        missing.back() = rank;
        refuse(child.place,
               cat("has no sibling of rank ", rank, ": ", path_text(missing), " is not listed"));
      }
      child.place = place = std::max(place, child.place);
      ++rank;
    }
  }

  std::int32_t find(std::int32_t parent, std::int32_t rank) const {
    const auto found = index_.find(key(parent, rank));
    return found == index_.end() ? absent : found->second;
  }

  static std::uint64_t key(std::int32_t parent, std::int32_t rank) {
    return static_cast<std::uint64_t>(parent) << 32 | static_cast<std::uint32_t>(rank);
  }

  [[noreturn]] void refuse(std::size_t place, const std::string& why) const {
    throw_usage(cat("tree shape: paths[", place, "] ", path_text(paths_[place]), " ", why));
  }

  std::span<const RankPath> paths_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::int32_t> index_;  // by parent and rank
};

// A fixed shape does not bias the output. Recursive rejection (verify/rejection.cc) is exact
// when, given a node and its earlier siblings, the next child is distributed as D without the
// siblings' tokens, and when whether there is a next child does not depend on its token. Children
// are drawn without replacement and judged in the order drawn, which gives the first. A child is
// there if the shape has its place, if D has mass left beyond its earlier siblings, and if its
// position's value reaches min_value: the shape is fixed before anything is drawn, mass and value
// follow from ancestors and earlier siblings, and all of these stay in the tree. No drawn token is
// ever dropped. (Choosing the shape by this step's draft probabilities would be another matter.)
class StaticPolicy final : public DraftPolicy {
 public:
  StaticPolicy(TreeShape shape, std::string name)
      : shape_(std::move(shape)), name_(std::move(name)) {}
  std::string name() const override { return name_; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    node_of_.assign(1, 0);
    open_.assign(1, {0, 0.0, 1.0});
    level_end_ = 1;
    want_level();
  }

  void take(DraftSource& source) override {
    const auto first = static_cast<std::int32_t>(node_of_.size());
    for (std::int32_t node = first; node < level_end_; ++node)
      node_of_.push_back(draw(node, source));
    want_level();
  }

 private:
  // What a tree node's next child finds.
  struct Open {
    std::int32_t rank;  // its rank: the number of earlier siblings
    double mass;        // their D
    double value;       // of its position (DySpec, eq. 11)
  };

  std::int32_t node_of(std::int32_t shape_node) const {
    return node_of_[static_cast<std::size_t>(shape_node)];
  }
  bool admits(std::int32_t parent) const {
    return parent != absent && open_[static_cast<std::size_t>(parent)].value >= limits_.min_value;
  }

  // What the shape's next level grows from.
  void want_level() {
    frontier_.clear();
    const std::int32_t first = level_end_, end = std::min(shape_.size(), limits_.max_size) + 1;
    if (first >= end || shape_.depth(first) > limits_.max_depth) return;
    for (; level_end_ < end && shape_.depth(level_end_) == shape_.depth(first); ++level_end_) {
      const std::int32_t parent = node_of(shape_.parent(level_end_));
      if (shape_.rank(level_end_) == 0 && admits(parent)) frontier_.push_back(parent);
    }
  }

  // The tree node drawn for a node of the shape, or absent.
  std::int32_t draw(std::int32_t shape_node, DraftSource& source) {
    const std::int32_t parent = node_of(shape_.parent(shape_node));
    if (!admits(parent)) return absent;
    const auto p = static_cast<std::size_t>(parent);
    const std::int32_t rank = shape_.rank(shape_node);
    if (open_[p].rank != rank) return absent;  // an earlier sibling is absent
    const auto drawn = source.child(candidates_, parent, rank);
    if (!drawn) return absent;
    const double value = open_[p].value;
    const std::int32_t node = candidates_.add(parent, drawn->token, rank, drawn->prob, value);
    open_.push_back({0, 0.0, std::min(value, candidates_.path_prob.back())});
    ++open_[p].rank;
    open_[p].mass += static_cast<double>(drawn->prob);
    open_[p].value = std::min(value, candidates_.path_prob[p] * std::max(0.0, 1.0 - open_[p].mass));
    return node;
  }

  TreeShape shape_;
  std::string name_;
  std::vector<std::int32_t> node_of_;  // tree node by node of the shape, or absent
  std::vector<Open> open_;             // by tree node
  std::int32_t level_end_ = 1;         // behind the shape's nodes that are or will be drawn next
};

}  // namespace

TreeShape::TreeShape(std::span<const RankPath> paths) {
  if (paths.size() > static_cast<std::size_t>(most_nodes)) throw_usage(too_many(paths.size()));
  const PathTree tree(paths);
  std::vector<std::int32_t> index(paths.size() + 1, 0);
  for (const std::int32_t id : tree.breadth_first()) {
    index[static_cast<std::size_t>(id)] =
        add(index[static_cast<std::size_t>(tree.node(id).parent)]);
  }
}

std::int32_t TreeShape::add(std::int32_t parent_node) {
  if (parent_node < 0 || parent_node > size()) {
    throw_usage(cat("tree shape: node ", parent_node, " is not there to get a child"));
  }
  const auto p = static_cast<std::size_t>(parent_node);
  if (depth_[p] + 1 < depth_.back()) {
    throw_usage(cat("tree shape: a child of node ", parent_node, " would stand behind a deeper ",
                    "node; add nodes by depth"));
  }
  if (size() == most_nodes) throw_usage(too_many(parent_.size()));
  parent_.push_back(parent_node);
  rank_.push_back(children_[p]++);
  depth_.push_back(depth_[p] + 1);
  children_.push_back(0);
  return size();
}

std::vector<RankPath> TreeShape::paths() const {
  std::vector<RankPath> paths;
  for (std::int32_t node = 1; node <= size(); ++node) {
    RankPath path;
    for (std::int32_t at = node; at > 0; at = parent(at)) path.push_back(rank(at));
    std::reverse(path.begin(), path.end());
    paths.push_back(std::move(path));
  }
  return paths;
}

TreeShape read_tree_shape(const std::filesystem::path& file) {
  return shape_from_json(*read_shape_file(file), file.string());
}

std::unique_ptr<DraftPolicy> make_static_policy(TreeShape shape, std::string name) {
  return std::make_unique<StaticPolicy>(std::move(shape), std::move(name));
}

}  // namespace coppice
