#include "study/advise/prediction.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace coppice::study {

double priced(const std::map<std::int32_t, double>& passes, const PassCosts& costs,
              std::int32_t prefix, const ClockRatio& ratio, double least) {
  double seconds = 0.0, price = least;
  std::int32_t next = 1;
  for (const auto& [rows, count] : passes) {
    for (; next <= rows; ++next) {
      price = std::max(price, ratio.at(next) * costs.seconds(next, prefix));
    }
    seconds += count * price;
  }
  return seconds;
}

void ClockRatio::add(std::int32_t rows, double clock_seconds, double table_seconds) {
  Sum& sum = seen_[rows];
  sum.clock += clock_seconds;
  sum.table += table_seconds;
}

double ClockRatio::at(std::int32_t rows) const {
  const auto ratio = [](const Sum& sum) {
    return sum.clock > 0.0 && sum.table > 0.0 ? sum.clock / sum.table : 1.0;
  };
  if (seen_.empty()) return 1.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return ratio(std::prev(above)->second);
  if (above == seen_.begin() || above->first == rows) return ratio(above->second);
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return ratio(below->second) + share * (ratio(above->second) - ratio(below->second));
}

Prediction predict(const Workload& workload, const CostTable& costs, std::int32_t prefix,
                   const ClockCalibration& calibration) {
  Prediction p;
  p.accepted_length = workload.accepted_length();
  p.nodes = workload.drafted / workload.steps;
  const double plain = calibration.plain.at(1) * costs.target.seconds(1, prefix);
  p.verify_seconds =
      priced(workload.verify_passes, costs.target, prefix, calibration.verify, plain) /
      workload.steps;
  p.draft_seconds =
      priced(workload.draft_passes, costs.draft, prefix, calibration.draft) / workload.steps;
  p.other_seconds = calibration.step_seconds + calibration.node_seconds * p.nodes;
  p.tokens_per_second = p.accepted_length / (p.verify_seconds + p.draft_seconds + p.other_seconds);
  return p;
}

Prediction predict_plain(const CostTable& costs, std::int32_t prefix,
                         const ClockCalibration& calibration) {
  Prediction p;
  p.verify_seconds = calibration.plain.at(1) * costs.target.seconds(1, prefix);
  p.other_seconds = calibration.step_seconds;
  p.tokens_per_second = 1.0 / (p.verify_seconds + p.other_seconds);
  return p;
}

namespace {

// Of the tree's first `nodes` nodes: how many the path passes.
std::int32_t passed(std::span<const std::int32_t> path, std::int32_t nodes) {
  std::int32_t count = 0;
  for (const std::int32_t node : path) {
    if (node >= nodes) break;
    ++count;
  }
  return count;
}

// The child of that rank, -1 for none.
std::int32_t child_of(const TreeShape& shape, std::int32_t node, std::int32_t rank) {
  if (rank >= shape.children(node)) return -1;
  for (std::int32_t n = node + 1; n <= shape.size(); ++n) {
    if (shape.parent(n) == node && shape.rank(n) == rank) return n;
  }
  return -1;
}

// Rows of each draft pass: a layer's nodes that have children.
std::vector<std::int32_t> layers_of(const TreeShape& shape) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(shape.height()), 0);
  for (std::int32_t n = 0; n <= shape.size(); ++n) {
    if (shape.children(n) > 0) ++rows[shape.depth(n)];
  }
  return rows;
}

}  // namespace

void Workload::add_step(double accepted_tokens, std::int32_t nodes,
                        std::span<const std::int32_t> draft_rows) {
  steps += 1.0;
  tokens += accepted_tokens;
  drafted += nodes;
  verify_passes[nodes + 1] += 1.0;
  for (const std::int32_t rows : draft_rows) draft_passes[rows] += 1.0;
}

void add_dyspec(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
                std::int32_t size) {
  const std::int32_t nodes = std::min(tree.nodes(), size + 1);
  // Of the first position under a node, as drafting/position_values.h has it. Under rejection its
  // child carries it; elsewhere growth looks ahead, and a node's own value bounds it.
  std::vector<double> first_child(tree.value);
  for (std::size_t n = 1; n < first_child.size(); ++n) {
    if (tree.uniform[n] >= 0.0f) first_child[n] = 0.0;
  }
  for (std::size_t n = 1; n < first_child.size(); ++n) {
    const auto parent = static_cast<std::size_t>(tree.parent[n]);
    if (tree.rank[n] == 0 && parent != 0 && tree.uniform[n] >= 0.0f) {
      first_child[parent] = tree.value[n];
    }
  }
  std::vector<std::int32_t> rows;
  std::vector<double> known;  // values of the positions of depth <= round
  for (std::int32_t round = 0;; ++round) {
    // The nodes of depth `round`, against the best `size` positions of no greater depth.
    for (std::int32_t n = 1; n < tree.nodes(); ++n) {
      const auto i = static_cast<std::size_t>(n);
      if (tree.depth[i] == round) known.push_back(tree.value[i]);
    }
    double cut = 0.0;
    if (known.size() >= static_cast<std::size_t>(size)) {
      std::nth_element(known.begin(), known.begin() + (size - 1), known.end(), std::greater<>());
      cut = known[size - 1];
    }
    std::int32_t evaluated = 0;
    for (std::int32_t n = 0; n < tree.nodes(); ++n) {
      const auto i = static_cast<std::size_t>(n);
      if (tree.depth[i] != round) continue;
      if (n == 0 || (tree.value[i] >= cut && first_child[i] > cut)) ++evaluated;
    }
    if (evaluated == 0) break;
    rows.push_back(evaluated);
  }
  workload.add_step(1.0 + passed(path, nodes), nodes - 1, rows);
}

void add_chain(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               std::int32_t length) {
  const std::int32_t nodes = std::min(tree.nodes(), length + 1);
  const std::vector<std::int32_t> rows(static_cast<std::size_t>(nodes - 1), 1);
  workload.add_step(1.0 + passed(path, nodes), nodes - 1, rows);
}

void add_fixed(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               const TreeShape& shape) {
  std::int32_t node = 0;
  double accepted = 1.0;
  for (const std::int32_t next : path) {
    node = child_of(shape, node, tree.rank[next]);
    if (node < 0) break;
    accepted += 1.0;
  }
  workload.add_step(accepted, shape.size(), layers_of(shape));
}

bool holds(const TreeShape& whole, const TreeShape& part) {
  std::vector<std::int32_t> place(static_cast<std::size_t>(part.size()) + 1, 0);
  for (std::int32_t n = 1; n <= part.size(); ++n) {
    const std::int32_t parent = place[part.parent(n)];
    const std::int32_t found = child_of(whole, parent, part.rank(n));
    if (found < 0) return false;
    place[n] = found;
  }
  return true;
}

void add_shape(Workload& workload, const TreeShape& shape, double accepted_length, double steps) {
  workload.steps += steps;
  workload.tokens += steps * accepted_length;
  workload.drafted += steps * shape.size();
  workload.verify_passes[shape.size() + 1] += steps;
  for (const std::int32_t rows : layers_of(shape)) workload.draft_passes[rows] += steps;
}

}  // namespace coppice::study
