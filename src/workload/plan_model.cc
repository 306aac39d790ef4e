#include "workload/plan_model.h"

#include <algorithm>

namespace coppice::workload {
const char* name_of(Plan plan) {
  switch (plan) {
    case Plan::flatten:
      return "flatten";
    case Plan::node:
      return "node";
    case Plan::node_chunk:
      return "node-chunk";
    case Plan::subtree:
      return "subtree";
    case Plan::radix:
      return "radix";
  }
  return "";
}

AttentionDivision division_of(Plan plan) {
  switch (plan) {
    case Plan::node:
      return AttentionDivision::node;
    case Plan::node_chunk:
      return AttentionDivision::node_chunk;
    case Plan::subtree:
      return AttentionDivision::subtree;
    case Plan::flatten:
    case Plan::radix:
      break;
  }
  return AttentionDivision::flatten;
}

PlanReads& PlanReads::operator+=(const PlanReads& other) {
  kv_tokens += other.kv_tokens;
  groups += other.groups;
  longest += other.longest;
  iterations += other.iterations;
  return *this;
}

PlanReads reads_by(Plan plan, const TreeTemplate& tree, bool copies) {
  PlanReads sum;
  const bool by_query = copies || plan == Plan::radix;
  const std::vector<std::int64_t> path = tokens_above(tree);
  std::vector<std::int64_t> before;  // lengths of written nodes before a span
  for_each_span(tree, [&](const Span& span) {
    before.clear();
    for (const std::int32_t node : span.writing) {
      const auto n = static_cast<std::size_t>(node);
      before.push_back(span.begin - tree.nodes[n].begin + (by_query ? path[n] : 0));
    }
    const Lengths above = by_query ? Lengths{} : span.above;
    for (std::int64_t i = 1; i <= span.iterations(); ++i) {
      std::int64_t tokens = above.tokens, longest = above.longest, groups = above.groups;
      for (const std::int64_t length : before) {
        tokens += length + i;
        longest = std::max(longest, length + i);
        groups += groups_of(length + i);
      }
      switch (plan) {
        case Plan::node:
          groups = above.nodes + std::ssize(before);
          break;
        case Plan::node_chunk:
        case Plan::radix:
          longest = std::min(longest, group_tokens);
          break;
        case Plan::flatten:
        case Plan::subtree:
          groups = groups_of(tokens);
          longest = (tokens + groups - 1) / groups;
          break;
      }
      sum += {tokens, groups, longest, 1};
    }
  });
  return sum;
}

}  // namespace coppice::workload
