#include "workload/plan_model.h"

#include <algorithm>

namespace coppice::workload {
namespace {

std::int64_t pieces_of(std::int64_t tokens) { return (tokens + group_tokens - 1) / group_tokens; }

}  // namespace

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
  std::vector<std::int64_t> runs, before;  // lengths that are read; of written nodes before a span
  for_each_span(tree, [&](const Span& span) {
    const bool by_query = copies || plan == Plan::radix;
    runs.clear();
    before.clear();
    for (const std::int32_t node : span.writing) {
      const TemplateNode& written = tree.nodes[static_cast<std::size_t>(node)];
      before.push_back(span.begin - written.begin +
                       (by_query ? tree.path_tokens(node) - written.tokens : 0));
    }
    runs.resize(before.size());
    if (!by_query) {
      for (const std::int32_t node : span.above) {
        const std::int64_t tokens = tree.nodes[static_cast<std::size_t>(node)].tokens;
        if (tokens > 0) runs.push_back(tokens);
      }
    }
    for (std::int64_t i = 1; i <= span.iterations(); ++i) {
      std::int64_t tokens = 0, longest = 0, groups = 0;
      for (std::size_t r = 0; r < runs.size(); ++r) {
        if (r < before.size()) runs[r] = before[r] + i;
        tokens += runs[r];
        longest = std::max(longest, runs[r]);
        groups += pieces_of(runs[r]);
      }
      switch (plan) {
        case Plan::node:
          groups = std::ssize(runs);
          break;
        case Plan::node_chunk:
        case Plan::radix:
          longest = std::min(longest, group_tokens);
          break;
        case Plan::flatten:
        case Plan::subtree:
          groups = pieces_of(tokens);
          longest = (tokens + groups - 1) / groups;
          break;
      }
      sum += {tokens, groups, longest, 1};
    }
  });
  return sum;
}

}  // namespace coppice::workload
