#include "workload/motion.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <set>
#include <utility>

namespace coppice::workload {
namespace {

const TemplateNode& at(const TreeTemplate& tree, std::int32_t node) {
  return tree.nodes[static_cast<std::size_t>(node)];
}

/// first + (first + 1) + ... , `count` terms.
std::int64_t sum_from(std::int64_t first, std::int64_t count) {
  return first * count + count * (count - 1) / 2;
}

/// Nodes that have a written one below them. A change goes up no further than it changes
/// something: where the next node of a path begins as its parent ends, to that parent.
class Above {
 public:
  explicit Above(const TreeTemplate& tree)
      : tree_(tree),
        writes_(tree.nodes.size(), false),
        below_(tree.nodes.size(), 0),
        queued_(tree.nodes.size(), false) {}

  void begin(std::int32_t node) {
    writes_[index(node)] = true;
    if (below_[index(node)] == 0) count(node, 1);
  }
  void end(std::int32_t node) {
    writes_[index(node)] = false;
    if (below_[index(node)] == 0) count(node, -1);
  }
  Lengths lengths() {
    while (!longest_.empty() && below_[index(longest_.top().second)] == 0) {
      queued_[index(longest_.top().second)] = false;
      longest_.pop();
    }
    Lengths lengths = sums_;
    lengths.longest = longest_.empty() ? 0 : longest_.top().first;
    return lengths;
  }

 private:
  static std::size_t index(std::int32_t node) { return static_cast<std::size_t>(node); }

  /// A node is read now (1), or no longer (-1).
  void count(std::int32_t node, std::int32_t by) {
    for (std::int32_t up = at(tree_, node).parent; up >= 0; up = at(tree_, up).parent) {
      below_[index(up)] += by;
      if (below_[index(up)] != (by > 0 ? 1 : 0)) return;
      add(up, by);
      if (writes_[index(up)]) return;  // is read anyway
    }
  }

  void add(std::int32_t node, std::int32_t by) {
    const std::int64_t tokens = at(tree_, node).tokens;
    if (tokens == 0) return;
    sums_.nodes += by;
    sums_.tokens += by * tokens;
    sums_.groups += by * groups_of(tokens);
    if (by < 0 || queued_[index(node)]) return;
    queued_[index(node)] = true;
    longest_.emplace(tokens, node);
  }

  const TreeTemplate& tree_;
  std::vector<bool> writes_;
  std::vector<std::int32_t> below_;  ///< by node: its children that are read
  std::vector<bool> queued_;         ///< in longest_, which may hold nodes that are read no longer
  std::priority_queue<std::pair<std::int64_t, std::int32_t>> longest_;
  Lengths sums_;
};

}  // namespace

std::int64_t groups_of(std::int64_t tokens) { return (tokens + group_tokens - 1) / group_tokens; }

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
  std::set<std::int32_t> writing;
  Above above(tree);
  std::vector<std::int32_t> ended;
  Span span;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    for (const std::int32_t node : change->second.ends) {
      writing.erase(node);
      ended.push_back(node);
    }
    for (const std::int32_t node : change->second.begins) {
      writing.insert(node);
      above.begin(node);
    }
    const auto next = std::next(change);
    if (writing.empty() || next == changes.end()) continue;
    for (const std::int32_t node : ended) above.end(node);
    ended.clear();
    span.begin = change->first;
    span.end = next->first - 1;
    span.writing.assign(writing.begin(), writing.end());
    span.above = above.lengths();
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
  const std::vector<std::int64_t> before = tokens_above(tree);
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    const TemplateNode& node = tree.nodes[n];
    reads.generated += node.tokens;
    reads.iterations = std::max(reads.iterations, node.end);
  }
  for_each_span(tree, [&](const Span& span) {
    const std::int64_t count = span.iterations();
    std::int64_t paths = 0, written = 0;  // tokens read in the span's last iteration
    for (const std::int32_t node : span.writing) {
      const std::int64_t first = span.begin - at(tree, node).begin + 1;
      const std::int64_t own = sum_from(first, count),
                         path = before[static_cast<std::size_t>(node)];
      reads.per_query += path * count + own;
      reads.by_tree += own;
      paths += path;
      written += first + count - 1;
    }
    reads.by_tree += span.above.tokens * count;
    reads.peak_by_tree = std::max(reads.peak_by_tree, span.above.tokens + written);
    reads.peak_per_query = std::max(reads.peak_per_query, paths + written);
    reads.most_branches =
        std::max(reads.most_branches, static_cast<std::int64_t>(span.writing.size()));
  });
  return reads;
}

std::vector<std::int64_t> tokens_above(const TreeTemplate& tree) {
  std::vector<std::int64_t> above(tree.nodes.size(), 0);
  for (std::size_t n = 1; n < above.size(); ++n) {
    const auto parent = static_cast<std::size_t>(tree.nodes[n].parent);
    above[n] = above[parent] + tree.nodes[parent].tokens;
  }
  return above;
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
