#include "snapshots.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "workload/motion.h"
#include "workload/template_file.h"

namespace coppice::bench {
namespace {

/// The tree in an iteration of a span.
class Snapshot {
 public:
  Snapshot(const workload::TreeTemplate& tree, const workload::Span& span, std::int64_t iteration)
      : children_(tree.nodes.size()), tokens_(tree.nodes.size(), -1) {
    for (const std::int32_t node : span.writing) {
      for (std::int32_t up = tree.nodes[index(node)].parent; up >= 0;
           up = tree.nodes[index(up)].parent) {
        tokens_[index(up)] = tree.nodes[index(up)].tokens;
      }
    }
    for (const std::int32_t node : span.writing) {
      tokens_[index(node)] = iteration - tree.nodes[index(node)].begin;
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

  // Depth-first; nodes precede what is below them. What has nothing below it is being written.
  void visit(std::int32_t node) {
    const std::size_t place = nodes_.size();
    const std::int32_t first = rows_;
    const std::int64_t tokens = tokens_[index(node)];
    // Begun just now, it has a row alone, behind its parent.
    if (tokens > 0) nodes_.push_back({{}, static_cast<std::int32_t>(tokens)});
    for (const std::int32_t child : children_[index(node)]) visit(child);
    if (children_[index(node)].empty()) ++rows_;
    if (tokens > 0) nodes_[place].rows = {first, rows_};
  }

  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::int64_t> tokens_;  ///< -1: nothing reads it
  std::vector<ForestNode> nodes_;
  std::int32_t rows_ = 0;
};

/// The same cells in FlashForge's second head shape, too.
std::vector<Cell> in_both_shapes(std::vector<Cell> cells) {
  const std::vector<Cell> of_one_shape = cells;
  for (Cell cell : of_one_shape) {
    cell.kv_heads = 8;
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

std::vector<Cell> snapshot_cells(const workload::TreeTemplate& tree, const std::string& name,
                                 std::int32_t count) {
  std::int64_t last = 0;
  for (const workload::TemplateNode& node : tree.nodes) {
    if (node.tokens > 0) last = std::max(last, node.end);
  }
  std::vector<Cell> cells;
  std::int32_t next = 1;
  workload::for_each_span(tree, [&](const workload::Span& span) {
    for (; next <= count && last * next / count <= span.end; ++next) {
      const std::int64_t iteration = last * next / count;
      if (iteration < span.begin) continue;
      const Snapshot snapshot(tree, span, iteration);
      Cell cell{Kind::forest, 32, 32, 0, snapshot.rows(), snapshot.rows()};
      cell.nodes = snapshot.nodes();
      cell.label = cat(name, "@", iteration);
      cells.push_back(std::move(cell));
    }
  });
  return in_both_shapes(std::move(cells));
}

std::vector<Cell> snapshot_cells(const workload::SpeculationFile& file, const std::string& name,
                                 std::int32_t count) {
  const std::vector<std::int32_t>& accepted = file.records.front().accepted;
  const std::int32_t rows = file.tree.size() + 1;
  std::vector<std::int32_t> parents;
  for (std::int32_t node = 0; node < rows; ++node) parents.push_back(file.tree.parent(node));
  const auto steps = std::ssize(accepted);
  std::vector<Cell> cells;
  for (std::int32_t i = 1; i <= count; ++i) {
    const auto step = steps * i / count;
    if (step == steps * (i - 1) / count) continue;
    const std::int64_t text = std::accumulate(accepted.begin(), accepted.begin() + step - 1,
                                              workload::recorded_prompt_tokens);
    Cell cell{Kind::forest, 32, 32, 0, rows};
    cell.nodes = {{{0, rows}, static_cast<std::int32_t>(text)}};
    cell.parents = parents;
    cell.label = cat(name, "@", step);
    cells.push_back(std::move(cell));
  }
  return in_both_shapes(std::move(cells));
}

std::vector<Cell> snapshot_cells(const std::filesystem::path& file, std::int32_t count) {
  const std::string name = file.stem().string();
  if (workload::read_template_file(file)->is_object()) {
    return snapshot_cells(workload::read_speculation(file), name, count);
  }
  const workload::ReasoningFile read = workload::read_reasoning(file);
  if (read.trees.empty()) throw_failure(cat(file.string(), ": no complete template"));
  return snapshot_cells(read.trees.front(), name, count);
}

}  // namespace coppice::bench
