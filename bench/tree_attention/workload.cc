#include "workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <span>

#include "base/error.h"
#include "base/tree_order.h"

namespace coppice::bench {
namespace {

struct Position {
  double value;
  std::int32_t parent;
  std::int32_t rank;
  double mass_left;  ///< of the parent's draft distribution

  bool operator<(const Position& other) const {
    return value != other.value ? value < other.value : parent > other.parent;
  }
};

/// Rows of `order`, as nodes, if it is not depth-first.
std::vector<std::int32_t> node_of_row(const TokenTree& tree, RowOrder order) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(tree.nodes()));
  std::iota(nodes.begin(), nodes.end(), 0);
  if (order == RowOrder::breadth_first) {
    std::stable_sort(nodes.begin(), nodes.end(), [&](std::int32_t a, std::int32_t b) {
      return tree.depth[static_cast<std::size_t>(a)] < tree.depth[static_cast<std::size_t>(b)];
    });
  }
  return nodes;
}

/// Places tokens in pages.
class Pages {
 public:
  Pages(std::int32_t pages, const PageOrder& order, std::mt19937& random)
      : page_size_(order.page_size), order_(static_cast<std::size_t>(pages)) {
    std::iota(order_.begin(), order_.end(), 0);
    if (order.shuffled) std::shuffle(order_.begin(), order_.end(), random);
    if (!order.scattered) return;
    scattered_.resize(static_cast<std::size_t>(pages * order.page_size));
    std::iota(scattered_.begin(), scattered_.end(), 0);
    std::shuffle(scattered_.begin(), scattered_.end(), random);
  }
  /// `count` tokens from the start of a fresh page.
  void place(std::int32_t count, std::vector<KvSlot>& slots) {
    for (std::int32_t t = 0; t < count; ++t) {
      const std::int32_t offset = t % page_size_;
      if (offset == 0) ++used_;
      const KvSlot slot = order_.at(used_ - 1) * page_size_ + offset;
      slots.push_back(scattered_.empty() ? slot : scattered_[static_cast<std::size_t>(slot)]);
    }
  }

 private:
  std::int32_t page_size_;
  std::vector<std::int32_t> order_;
  std::vector<KvSlot> scattered_;  ///< where a slot lies instead
  std::size_t used_ = 0;
};

/// Calls former(node, position of its first token) for the nodes of a forest that are not shared,
/// and row(row, position) for every row behind the last node that it sees, in the tail's order.
template <typename Former, typename Row>
void for_each_node(const Cell& cell, Former former, Row row) {
  struct Ancestor {
    IndexRange rows;
    std::int32_t end;
  };
  std::vector<Ancestor> path;
  std::int32_t next_row = 0;
  const auto end_rows = [&](std::int32_t until) {
    for (; next_row < until; ++next_row) {
      while (path.back().rows.end <= next_row) path.pop_back();
      row(next_row, path.back().end);
    }
  };
  const std::size_t shared = cell.shared_nodes();
  for (std::size_t i = 0; i < cell.nodes.size(); ++i) {
    const ForestNode& node = cell.nodes[i];
    end_rows(node.rows.begin);
    while (!path.empty() && path.back().rows.end <= node.rows.begin) path.pop_back();
    const std::int32_t position = path.empty() ? 0 : path.back().end;
    path.push_back({node.rows, position + node.tokens});
    if (i >= shared) former(node, position);
  }
  if (!cell.nodes.empty()) end_rows(cell.rows);
}

/// Tail tokens that lie side by side.
std::vector<std::int32_t> runs_of(const Cell& cell) {
  std::vector<std::int32_t> runs;
  if (!cell.parents.empty()) return {cell.rows};
  if (!cell.nodes.empty()) {
    for_each_node(
        cell, [&](const ForestNode& node, std::int32_t) { runs.push_back(node.tokens); },
        [&](std::int32_t, std::int32_t) { runs.push_back(1); });
    return runs;
  }
  if (cell.kind != Kind::forest) {
    const std::int32_t count = cell.kind == Kind::fewshot ? cell.rows : 1;
    runs.assign(static_cast<std::size_t>(count), cell.tail() / count);
  }
  for (std::int32_t text = 0; text < cell.texts && cell.kind == Kind::forest; ++text) {
    for (std::size_t level = 1; level < cell.levels.size(); ++level) {
      const auto [nodes, tokens] = cell.levels[level];
      if (text % (cell.texts / nodes) == 0) runs.push_back(tokens);
    }
    runs.push_back(cell.prefix / cell.texts);
    runs.push_back(cell.rows / cell.texts);
  }
  return runs;
}

Workload placed(const Cell& cell, const PageOrder& order, std::mt19937& random) {
  const auto pages_for = [&](std::int32_t tokens) {
    return (tokens + order.page_size - 1) / order.page_size;
  };
  Workload work;
  work.cell = cell;
  work.page_size = order.page_size;
  work.pages = pages_for(cell.shared());
  for (const std::int32_t run : runs_of(cell)) work.pages += pages_for(run);
  Pages pages(work.pages, order, random);
  pages.place(cell.shared(), work.prefix);
  for (const std::int32_t run : runs_of(cell)) pages.place(run, work.tail_slots);
  work.visibility = Visibility(cell.rows, cell.tail());
  return work;
}

/// Adds the next tail token and who sees it. The first of these rows lies where the last of its
/// tokens does.
void add_tail(Workload& work, std::int32_t q_begin, std::int32_t q_end, std::int32_t position) {
  const auto token = static_cast<std::int32_t>(work.tail.size());
  work.tail.push_back({work.tail_slots[work.tail.size()], q_begin, q_end, position});
  work.positions.resize(static_cast<std::size_t>(work.cell.rows));
  work.positions[static_cast<std::size_t>(q_begin)] = position;
  for (std::int32_t query = q_begin; query < q_end; ++query) work.visibility.set(query, token);
}

/// Adds the rows of a token tree in depth-first order, the first one being `first`; its root lies
/// at `position`.
void add_tree(Workload& work, const TokenTree& tree, std::int32_t first, std::int32_t position) {
  TreeOrder order;
  order.assign(tree);
  for (std::int32_t row = 0; row < order.rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    add_tail(work, first + row, first + row + order.subtree_rows[at],
             position + tree.depth[static_cast<std::size_t>(order.node_of_row[at])]);
  }
}

TokenTree tree_with(std::span<const std::int32_t> parents) {
  TokenTree tree;
  tree.reset(0);
  for (std::size_t node = 1; node < parents.size(); ++node) {
    tree.add(parents[node], 0, 0, 0.5f, 0.5);
  }
  return tree;
}

/// Returns the tree with larger subtrees before smaller siblings (DySpec, appendix C).
TokenTree heavy_first(const TokenTree& tree) {
  std::vector<std::int32_t> size(tree.token.size(), 1), nodes = {0};
  for (std::size_t node = tree.token.size(); node-- > 1;) {
    size[static_cast<std::size_t>(tree.parent[node])] += size[node];
  }
  TokenTree sorted;
  sorted.reset(tree.token[0]);
  for (std::int32_t above = 0; above < sorted.nodes(); ++above) {
    std::vector<std::int32_t> children;
    const auto of = static_cast<std::size_t>(nodes[static_cast<std::size_t>(above)]);
    for (std::int32_t child = tree.first_child[of]; child >= 0;
         child = tree.next_sibling[static_cast<std::size_t>(child)]) {
      children.push_back(child);
    }
    std::ranges::stable_sort(children, std::greater<>(), [&](std::int32_t child) {
      return size[static_cast<std::size_t>(child)];
    });
    for (const std::int32_t child : children) {
      sorted.add(above, tree.token[static_cast<std::size_t>(child)], 0, 0.5f, 0.5);
      nodes.push_back(child);
    }
  }
  return sorted;
}

}  // namespace

TokenTree dyspec_like_tree(std::int32_t nodes, std::mt19937& random) {
  TokenTree tree;
  tree.reset(0);
  std::priority_queue<Position> positions;
  positions.push({1.0, 0, 0, 1.0});
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  while (tree.nodes() < nodes) {
    const Position drawn = positions.top();
    positions.pop();
    const double prob = drawn.mass_left * std::pow(uniform(random), 2.0 / 3.0);
    const std::int32_t node =
        tree.add(drawn.parent, tree.nodes(), drawn.rank, static_cast<float>(prob), drawn.value);
    const double parent_prob = tree.path_prob[static_cast<std::size_t>(drawn.parent)];
    const double mass_left = drawn.mass_left - prob;
    positions.push({parent_prob * mass_left, drawn.parent, drawn.rank + 1, mass_left});
    positions.push({tree.path_prob[static_cast<std::size_t>(node)], node, 0, 1.0});
  }
  return tree;
}

TokenTree uniform_tree(std::int32_t nodes, std::mt19937& random) {
  TokenTree tree;
  tree.reset(0);
  std::vector<std::int32_t> children(static_cast<std::size_t>(nodes), 0);
  while (tree.nodes() < nodes) {
    const std::int32_t parent =
        std::uniform_int_distribution<std::int32_t>(0, tree.nodes() - 1)(random);
    tree.add(parent, tree.nodes(), children[static_cast<std::size_t>(parent)]++, 0.5f, 0.5);
  }
  return tree;
}

const char* name_of(RowOrder order) {
  switch (order) {
    case RowOrder::added:
      return "as added";
    case RowOrder::breadth_first:
      return "breadth-first";
    case RowOrder::depth_first:
      return "depth-first";
    case RowOrder::heavy_path:
      return "heavy path";
  }
  return "";
}

std::int64_t count_blocks(const Visibility& visibility, std::int32_t queries, std::int32_t tokens) {
  const auto blocks = [](std::int32_t count, std::int32_t size) {
    return (count + size - 1) / size;
  };
  const std::int32_t across = blocks(visibility.tail(), tokens);
  std::vector<bool> seen(static_cast<std::size_t>(blocks(visibility.rows(), queries)) *
                             static_cast<std::size_t>(across),
                         false);
  for (std::int32_t query = 0; query < visibility.rows(); ++query) {
    for (std::int32_t token = 0; token < visibility.tail(); ++token) {
      if (!visibility.sees(query, token)) continue;
      seen[static_cast<std::size_t>(query / queries * across + token / tokens)] = true;
    }
  }
  return std::count(seen.begin(), seen.end(), true);
}

Workload make_tree_workload(const Cell& cell, const TokenTree& tree, RowOrder order,
                            std::mt19937& random, const PageOrder& pages) {
  if (cell.kind != Kind::verify || tree.nodes() != cell.rows) {
    throw_failure(cat("a tree of ", tree.nodes(), " nodes for the cell ", cell.name()));
  }
  Workload work = placed(cell, pages, random);
  if (order == RowOrder::depth_first || order == RowOrder::heavy_path) {
    add_tree(work, order == RowOrder::heavy_path ? heavy_first(tree) : tree, 0, cell.prefix);
    return work;
  }
  const std::vector<std::int32_t> nodes = node_of_row(tree, order);
  std::vector<std::int32_t> row_of_node(nodes.size());
  for (std::size_t row = 0; row < nodes.size(); ++row) {
    row_of_node[static_cast<std::size_t>(nodes[row])] = static_cast<std::int32_t>(row);
  }
  for (std::int32_t row = 0; row < cell.rows; ++row) {
    for (std::int32_t node = nodes[static_cast<std::size_t>(row)]; node >= 0;
         node = tree.parent[static_cast<std::size_t>(node)]) {
      work.visibility.set(row, row_of_node[static_cast<std::size_t>(node)]);
    }
  }
  return work;
}

Workload make_workload(const Cell& cell, std::uint32_t seed, const PageOrder& order) {
  std::mt19937 random(seed);
  if (cell.kind == Kind::verify) {
    const TokenTree tree = dyspec_like_tree(cell.rows, random);
    return make_tree_workload(cell, tree, RowOrder::depth_first, random, order);
  }
  Workload work = placed(cell, order, random);
  const auto add_former = [&](std::int32_t count, IndexRange rows, std::int32_t position) {
    const auto begin = static_cast<std::int32_t>(work.tail.size());
    work.former.push_back({begin, begin + count});
    for (std::int32_t i = 0; i < count; ++i) add_tail(work, rows.begin, rows.end, position + i);
  };
  if (!cell.parents.empty()) {
    add_tree(work, tree_with(cell.parents), 0, cell.shared());
    return work;
  }
  if (!cell.nodes.empty()) {
    for_each_node(
        cell,
        [&](const ForestNode& node, std::int32_t position) {
          add_former(node.tokens, node.rows, position);
        },
        [&](std::int32_t row, std::int32_t position) { add_tail(work, row, row + 1, position); });
    return work;
  }
  for (std::int32_t text = 0; text < cell.texts && cell.kind == Kind::forest; ++text) {
    const std::int32_t rows = cell.rows / cell.texts, first = text * rows;
    const std::int32_t own = cell.prefix / cell.texts;
    std::int32_t before = cell.shared();
    for (std::size_t level = 1; level < cell.levels.size(); ++level) {
      const auto [nodes, tokens] = cell.levels[level];
      const std::int32_t below = cell.texts / nodes;
      if (text % below == 0) add_former(tokens, {first, first + below * rows}, before);
      before += tokens;
    }
    add_former(own, {first, first + rows}, before);
    add_tree(work, dyspec_like_tree(rows, random), first, before + own);
  }
  if (cell.kind == Kind::forest) return work;
  for (std::int32_t token = 0; token < cell.tail(); ++token) {
    if (cell.kind == Kind::fewshot) {
      add_tail(work, token / branch_tokens, token / branch_tokens + 1,
               cell.prefix + token % branch_tokens);
    } else {
      add_tail(work, token, cell.rows, cell.prefix + token);
    }
  }
  return work;
}

}  // namespace coppice::bench
