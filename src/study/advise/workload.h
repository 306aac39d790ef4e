// What a policy's steps would have asked of both models, counted from other steps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/static_tree.h"

namespace coppice::study {

/// Passes by their rows, and the tokens that came of them.
struct Workload {
  double steps = 0.0;
  double tokens = 0.0;                           ///< accepted ones and bonus tokens
  double drafted = 0.0;                          ///< draft tokens
  std::map<std::int32_t, double> verify_passes;  ///< by rows, the root included
  std::map<std::int32_t, double> draft_passes;

  double accepted_length() const { return steps > 0.0 ? tokens / steps : 0.0; }
  void add_step(double accepted_tokens, std::int32_t nodes,
                std::span<const std::int32_t> draft_rows);
};

/// The step as dyspec with `size` draft tokens would have done it, from one with as many or more.
/// A tree's nodes stand in the order in which Algorithm 1 adds them and its noise goes by place, so
/// the smaller tree is the first `size` nodes, and its accepted path ends where the larger one's
/// leaves them. It evaluates in round r the nodes of depth r - 1 that a child of theirs, worth
/// their path's probability, could still stand behind in the tree as known by then.
void add_dyspec(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
                std::int32_t size);
/// The same for a chain of `length`, from a longer one.
void add_chain(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               std::int32_t length);
/// The same for a fixed tree, from one that holds it (see holds()).
void add_fixed(Workload& workload, const TokenTree& tree, std::span<const std::int32_t> path,
               const TreeShape& shape);
/// Whether every node of `part`, as a path of ranks, is one of `whole`.
bool holds(const TreeShape& whole, const TreeShape& part);
/// `steps` steps with a fixed tree of which `accepted_length` tokens come on average.
void add_shape(Workload& workload, const TreeShape& shape, double accepted_length, double steps);

}  // namespace coppice::study
