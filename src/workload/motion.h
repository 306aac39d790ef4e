// A decoding tree in motion: what is written and read in each iteration.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/attention_plan.h"
#include "workload/tree_template.h"

namespace coppice::workload {

/// A node's KV is cut by the plans that cut into groups of this many tokens.
inline constexpr std::int64_t group_tokens = longest_group;

/// Lengths of nodes that somebody reads, those of no tokens left out.
struct Lengths {
  std::int64_t nodes = 0, tokens = 0, groups = 0, longest = 0;
};

/// Iterations in which the same nodes are written.
struct Span {
  std::int64_t begin = 1, end = 0;      ///< the last one included
  std::vector<std::int32_t> writing;    ///< one query each, in the order of the nodes
  Lengths above;                        ///< their ancestors, each once
  std::vector<std::int32_t> completed;  ///< nodes of `writing` whose last token is that of `end`
  std::int64_t iterations() const { return end - begin + 1; }
};

std::int64_t groups_of(std::int64_t tokens);

/// Hands over every span in which something is written, in order. The span is good for the call.
/// A chain takes time linear in its nodes.
void for_each_span(const TreeTemplate& tree, const std::function<void(const Span&)>& visit);

/// What writing trees one after another takes. An iteration's query reads its path's tokens, the
/// one being written included (DeFT's count).
struct Reads {
  std::int64_t iterations = 0;
  std::int64_t generated = 0;  ///< tokens
  std::int64_t per_query = 0;  ///< KV tokens read if every query reads its own path
  std::int64_t by_tree = 0;    ///< each node once, whoever sees it
  /// Most KV tokens that are live in one iteration: each node once, and as copies.
  std::int64_t peak_by_tree = 0, peak_per_query = 0;
  std::int64_t most_branches = 0;  ///< written side by side

  Reads& operator+=(const Reads& other);
  bool operator==(const Reads&) const = default;
};

Reads reads_of(const TreeTemplate& tree);

/// By node, tokens of its ancestors.
std::vector<std::int64_t> tokens_above(const TreeTemplate& tree);

/// By node, from which iteration on its KV is of no more use: nothing below it is written again.
std::vector<std::int64_t> pruned_after(const TreeTemplate& tree);

}  // namespace coppice::workload
