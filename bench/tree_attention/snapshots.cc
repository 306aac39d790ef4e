#include "snapshots.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "workload/motion.h"

namespace coppice::bench {
namespace {

/// The tree in an iteration of a span.
class Snapshot {
 public:
  Snapshot(const workload::TreeTemplate& tree, const workload::Span& span, std::int64_t iteration)
      : tree_(tree), children_(tree.nodes.size()), tokens_(tree.nodes.size(), -1) {
    for (const std::int32_t node : span.above)
      tokens_[index(node)] = tree.nodes[index(node)].tokens;
    for (const std::int32_t node : span.writing) {
      tokens_[index(node)] = iteration - tree.nodes[index(node)].begin;
      ends_.push_back(node);
    }
    for (std::size_t node = 1; node < tree.nodes.size(); ++node) {
      if (tokens_[node] < 0) continue;
      children_[index(tree.nodes[node].parent)].push_back(static_cast<std::int32_t>(node));
    }
    visit(0);
  }

  const std::vector<ForestNode>& nodes() const { return nodes_; }
  std::int32_t rows() const { return rows_; }

 private:
  static std::size_t index(std::int32_t node) { return static_cast<std::size_t>(node); }

  // Depth-first; nodes precede what is below them.
  void visit(std::int32_t node) {
    const std::size_t place = nodes_.size();
    const std::int32_t first = rows_;
    nodes_.push_back({{}, static_cast<std::int32_t>(tokens_[index(node)])});
    for (const std::int32_t child : children_[index(node)]) visit(child);
    if (std::find(ends_.begin(), ends_.end(), node) != ends_.end()) ++rows_;
    if (tokens_[index(node)] == 0) {
      // Begun just now: its row is behind its parent.
      nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(place));
    } else {
      nodes_[place].rows = {first, rows_};
    }
  }

  const workload::TreeTemplate& tree_;
  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::int64_t> tokens_;  ///< -1: nothing reads it
  std::vector<std::int32_t> ends_;
  std::vector<ForestNode> nodes_;
  std::int32_t rows_ = 0;
};

}  // namespace

std::vector<Cell> snapshot_cells(const workload::TreeTemplate& tree, const std::string& name,
                                 std::int32_t count) {
  std::int64_t last = 0;
  workload::for_each_span(tree, [&](const workload::Span& span) { last = span.end; });
  std::vector<Cell> cells;
  for (const auto& [heads, kv_heads] : {std::pair{32, 32}, {32, 8}}) {
    std::int32_t next = 1;
    workload::for_each_span(tree, [&](const workload::Span& span) {
      for (; next <= count && last * next / count <= span.end; ++next) {
        const std::int64_t iteration = last * next / count;
        if (iteration < span.begin) continue;
        const Snapshot snapshot(tree, span, iteration);
        Cell cell{Kind::forest, heads, kv_heads, 0, snapshot.rows(), snapshot.rows()};
        cell.nodes = snapshot.nodes();
        cell.label = cat(name, "@", iteration);
        cells.push_back(std::move(cell));
      }
    });
  }
  return cells;
}

}  // namespace coppice::bench
