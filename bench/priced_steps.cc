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

// Nodes that a step's draft passes evaluated, by depth: those with children. (A last pass whose
// nodes were given none is not seen, and counts as one row.)
std::vector<std::int32_t> rows_by_depth(const TokenTree& tree) {
  std::vector<std::int32_t> rows;
  std::vector<bool> counted(tree.token.size());
  for (std::size_t node = 1; node < tree.token.size(); ++node) {
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

void PricedSteps::add(const StepView& step) {
  if (!step.is_step()) return;
  const std::int32_t prefix = step.state.length();
  sum_.verify += costs_.target.seconds(step.tree.nodes(), prefix);
  if (step.draft == nullptr) return;
  std::vector<std::int32_t> rows = rows_by_depth(step.tree);
  rows.resize(static_cast<std::size_t>(step.draft_passes), 1);
  if (!rows.empty()) rows.front() = 0;
  for (const std::int32_t r : rows) {
    sum_.draft += r == 0 ? costs_.first_draft_seconds(prefix) : costs_.draft.seconds(r, prefix);
  }
  sum_.judging += seconds_a_step + seconds_a_node * step.tree.size();
}

StepSeconds PricedSteps::take() { return std::exchange(sum_, {}); }

}  // namespace coppice::bench
