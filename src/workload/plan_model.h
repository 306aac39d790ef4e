// How much KV the papers' attention plans read over a tree in motion, and how evenly.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/attention_plan.h"
#include "workload/motion.h"

namespace coppice::workload {

/// DeFT's plans. `subtree` is the first version's name for what the second calls flatten.
enum class Plan { flatten, node, node_chunk, subtree, radix };
inline constexpr std::array all_plans = {Plan::flatten, Plan::node, Plan::node_chunk, Plan::subtree,
                                         Plan::radix};
const char* name_of(Plan plan);
/// What an engine that runs the plan divides its attention by. With `radix` its texts share
/// nothing.
AttentionDivision division_of(Plan plan);

/// Sums over iterations. A group is the KV of one work item with the queries that see it.
struct PlanReads {
  std::int64_t kv_tokens = 0;  ///< each group's once
  std::int64_t groups = 0;
  std::int64_t longest = 0;     ///< tokens of each iteration's longest group
  std::int64_t iterations = 0;  ///< in which something is written

  PlanReads& operator+=(const PlanReads& other);
  bool operator==(const PlanReads&) const = default;
};

/// `copies`: of a tree whose branches share nothing, each a copy of its path.
PlanReads reads_by(Plan plan, const TreeTemplate& tree, bool copies = false);

}  // namespace coppice::workload
