#include "priced_steps.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace coppice::bench {
namespace {

// On one H200 what stands beside the passes takes 10 us in chains, 26 with 15 nodes, 128 to 208
// with 64 (README, last column).
constexpr double seconds_a_step = 10e-6, seconds_a_node = 2e-6;

CostTable read(const std::filesystem::path& file) {
  auto costs = read_cost_table(file, std::nullopt);
  if (!costs) throw_failure(cat(file.string(), ": no table of costs; --cost-table writes one"));
  return *std::move(costs);
}

// Nodes that draft passes evaluated for a tree's first `size` nodes, by depth: those with children.
// (A last pass whose nodes were given none is not seen, and counts as one row.)
std::vector<std::int32_t> rows_by_depth(const TokenTree& tree, std::int32_t size) {
  std::vector<std::int32_t> rows;
  std::vector<bool> counted(tree.token.size());
  for (std::size_t node = 1; node <= static_cast<std::size_t>(size); ++node) {
    const auto parent = static_cast<std::size_t>(tree.parent[node]);
    if (counted[parent]) continue;
    counted[parent] = true;
    const auto depth = static_cast<std::size_t>(tree.depth[parent]);
    if (rows.size() <= depth) rows.resize(depth + 1);
    ++rows[depth];
  }
  return rows;
}

}  // namespace

PricedSteps::PricedSteps(const std::filesystem::path& costs) : costs_(read(costs)) {}

StepSeconds PricedSteps::price(const TokenTree& tree, std::int32_t size, std::int64_t passes,
                               std::int32_t prefix) const {
  StepSeconds seconds;
  seconds.verify = costs_.target.seconds(size + 1, prefix);
  if (passes == 0) return seconds;
  std::vector<std::int32_t> rows = rows_by_depth(tree, size);
  rows.resize(static_cast<std::size_t>(passes), 1);
  seconds.draft = costs_.first_draft_seconds(prefix);
  for (std::size_t pass = 1; pass < rows.size(); ++pass) {
    seconds.draft += costs_.draft.seconds(rows[pass], prefix);
  }
  seconds.judging = seconds_a_step + seconds_a_node * size;
  return seconds;
}

void PricedSteps::add(const StepView& step) {
  if (!step.is_step()) return;
  const std::int32_t prefix = step.state.length();
  const std::int64_t passes = step.draft == nullptr ? 0 : step.draft_passes;
  const StepSeconds seconds = price(step.tree, step.tree.size(), passes, prefix);
  sum_.draft += seconds.draft;
  sum_.verify += seconds.verify;
  sum_.judging += seconds.judging;

  std::vector<StepEnd>& ends = ends_.emplace_back();
  ends.push_back({1.0, costs_.target.seconds(1, prefix)});
  // Nodes are in the order of their values, or as they were drawn; a node of depth d takes d
  // passes.
  for (const std::int32_t node : step.verdict.path) {
    const StepSeconds to =
        price(step.tree, node, step.tree.depth[static_cast<std::size_t>(node)], prefix);
    ends.push_back({ends.back().tokens + 1.0, to.verify + to.draft + to.judging});
  }
}

StepSeconds PricedSteps::take() { return std::exchange(sum_, {}); }

std::vector<std::vector<StepEnd>> PricedSteps::take_ends() { return std::exchange(ends_, {}); }

double best_rate(const std::vector<std::vector<StepEnd>>& steps) {
  double rate = 0.0;
  while (true) {
    StepEnd sum{0.0, 0.0};
    for (const std::vector<StepEnd>& ends : steps) {
      const StepEnd* best = &ends.front();
      for (const StepEnd& end : ends) {
        if (end.tokens - rate * end.seconds > best->tokens - rate * best->seconds) best = &end;
      }
      sum.tokens += best->tokens;
      sum.seconds += best->seconds;
    }
    const double next = sum.tokens / sum.seconds;
    if (!(next > rate * (1.0 + 1e-9))) return rate;
    rate = next;
  }
}

}  // namespace coppice::bench
