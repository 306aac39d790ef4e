#include "workload/motion.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

namespace coppice::workload {
namespace {

const TemplateNode& at(const TreeTemplate& tree, std::int32_t node) {
  return tree.nodes[static_cast<std::size_t>(node)];
}

/// first + (first + 1) + ... , `count` terms.
std::int64_t sum_from(std::int64_t first, std::int64_t count) {
  return first * count + count * (count - 1) / 2;
}

}  // namespace

void for_each_span(const TreeTemplate& tree, const std::function<void(const Span&)>& visit) {
  struct Change {
    std::vector<std::int32_t> begins, ends;
  };
  std::map<std::int64_t, Change> changes;  // by the first iteration that sees it
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    const TemplateNode& node = tree.nodes[n];
    if (node.tokens == 0) continue;
    changes[node.begin].begins.push_back(static_cast<std::int32_t>(n));
    changes[node.end + 1].ends.push_back(static_cast<std::int32_t>(n));
  }
  std::set<std::int32_t> writing, above;
  std::vector<std::int32_t> readers(tree.nodes.size(), 0);  // written nodes below each node
  const auto count = [&](std::int32_t node, std::int32_t by) {
    for (std::int32_t up = at(tree, node).parent; up >= 0; up = at(tree, up).parent) {
      std::int32_t& below = readers[static_cast<std::size_t>(up)];
      below += by;
      if (below == 0) {
        above.erase(up);
      } else {
        above.insert(up);
      }
    }
  };
  Span span;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    for (const std::int32_t node : change->second.ends) {
      writing.erase(node);
      count(node, -1);
    }
    for (const std::int32_t node : change->second.begins) {
      writing.insert(node);
      count(node, 1);
    }
    const auto next = std::next(change);
    if (writing.empty() || next == changes.end()) continue;
    span.begin = change->first;
    span.end = next->first - 1;
    span.writing.assign(writing.begin(), writing.end());
    span.above.assign(above.begin(), above.end());
    span.completed = next->second.ends;
    visit(span);
  }
}

Reads& Reads::operator+=(const Reads& other) {
  iterations += other.iterations;
  generated += other.generated;
  per_query += other.per_query;
  by_tree += other.by_tree;
  peak_by_tree = std::max(peak_by_tree, other.peak_by_tree);
  peak_per_query = std::max(peak_per_query, other.peak_per_query);
  most_branches = std::max(most_branches, other.most_branches);
  return *this;
}

Reads reads_of(const TreeTemplate& tree) {
  Reads reads;
  std::vector<std::int64_t> before(tree.nodes.size(), 0);  // tokens of a node's ancestors
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    const TemplateNode& node = tree.nodes[n];
    const auto parent = static_cast<std::size_t>(node.parent);
    before[n] = before[parent] + tree.nodes[parent].tokens;
    reads.generated += node.tokens;
    reads.iterations = std::max(reads.iterations, node.end);
  }
  for_each_span(tree, [&](const Span& span) {
    const std::int64_t count = span.iterations();
    std::int64_t shared = 0, paths = 0, written = 0;  // tokens read in the span's last iteration
    for (const std::int32_t node : span.above) shared += at(tree, node).tokens;
    for (const std::int32_t node : span.writing) {
      const std::int64_t first = span.begin - at(tree, node).begin + 1;
      const std::int64_t own = sum_from(first, count),
                         path = before[static_cast<std::size_t>(node)];
      reads.per_query += path * count + own;
      reads.by_tree += own;
      paths += path;
      written += first + count - 1;
    }
    reads.by_tree += shared * count;
    reads.peak_by_tree = std::max(reads.peak_by_tree, shared + written);
    reads.peak_per_query = std::max(reads.peak_per_query, paths + written);
    reads.most_branches =
        std::max(reads.most_branches, static_cast<std::int64_t>(span.writing.size()));
  });
  return reads;
}

std::vector<std::int64_t> pruned_after(const TreeTemplate& tree) {
  std::vector<std::int64_t> last(tree.nodes.size(), 0);
  for (std::size_t n = tree.nodes.size(); --n > 0;) {
    last[n] = std::max(last[n], tree.nodes[n].end);
    std::int64_t& parent = last[static_cast<std::size_t>(tree.nodes[n].parent)];
    parent = std::max(parent, last[n]);
  }
  return last;
}

}  // namespace coppice::workload
