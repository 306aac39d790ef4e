#include "drafting/dyspec_auto.h"

#include <algorithm>
#include <numeric>

namespace coppice {

DyspecAutoPolicy::DyspecAutoPolicy(const GrowthEconomics& economics, bool hindsight)
    : economics_(economics), hindsight_(hindsight) {}

void DyspecAutoPolicy::grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) {
  frontier_.assign(1, 0);
  for (std::int32_t passes = 0; select_frontier(tree, limits, passes); ++passes) {
    source.evaluate(tree, selected_);
    draw_children(source, limits, tree);
  }
  if (hindsight_) cut_in_hindsight(tree);
}

// The frontier's nodes whose children can pay for their rows, if together they also pay for the
// pass. The root's pass is the engine's decision, made before the step.
bool DyspecAutoPolicy::select_frontier(const TokenTree& tree, const GrowthLimits& limits,
                                       std::int32_t passes) {
  selected_.clear();
  if (passes >= limits.max_depth || tree.size() >= limits.max_size) return false;
  if (passes == 0) {
    selected_ = frontier_;
    return true;
  }
  double gain = 0.0;
  for (const std::int32_t node : frontier_) {
    const double surplus =
        economics_.position_gain(tree.path_prob[static_cast<std::size_t>(node)]) -
        economics_.node_cost(tree.size());
    if (surplus <= 0.0) continue;
    gain += surplus;
    selected_.push_back(node);
  }
  return !selected_.empty() &&
         gain > economics_.pass_cost(static_cast<std::int32_t>(selected_.size()));
}

void DyspecAutoPolicy::draw_children(DraftSource& source, const GrowthLimits& limits,
                                     TokenTree& tree) {
  // Highest value first; ties by node and rank, never by token.
  const auto lower = [](const Position& a, const Position& b) {
    if (a.value != b.value) return a.value < b.value;
    if (a.node != b.node) return a.node > b.node;
    return a.rank > b.rank;
  };
  frontier_.clear();
  heap_.clear();
  for (const std::int32_t node : selected_) {
    heap_.push_back({tree.path_prob[static_cast<std::size_t>(node)], node, 0});
  }
  std::make_heap(heap_.begin(), heap_.end(), lower);
  while (!heap_.empty() && tree.size() < limits.max_size) {
    std::pop_heap(heap_.begin(), heap_.end(), lower);
    const Position position = heap_.back();
    heap_.pop_back();
    const double cost = economics_.node_cost(tree.size());
    if (position.value < limits.min_value || economics_.position_gain(position.value) <= cost) break;
    const auto drawn = source.child(tree, position.node, position.rank);
    if (!drawn) continue;
    const double parent_prob = tree.path_prob[static_cast<std::size_t>(position.node)];
    const double path_prob = parent_prob * static_cast<double>(drawn->prob);
    // In hindsight mode children come in falling order: the first that does not pay ends its
    // family.
    if (hindsight_ && economics_.node_gain(path_prob) <= cost) continue;
    frontier_.push_back(
        tree.add(position.node, drawn->token, position.rank, drawn->prob, position.value));
    heap_.push_back({std::max(0.0, position.value - path_prob), position.node, position.rank + 1});
    std::push_heap(heap_.begin(), heap_.end(), lower);
  }
}

// Keeps the most probable nodes, as many as pay best at the measured cost of a verify pass. A
// child is never more probable than its parent and has a higher index, so what is kept is a
// tree; siblings come in falling order, so ranks stay contiguous.
void DyspecAutoPolicy::cut_in_hindsight(TokenTree& tree) {
  ranking_.resize(static_cast<std::size_t>(tree.size()));
  std::iota(ranking_.begin(), ranking_.end(), 1);
  const auto prob = [&](std::int32_t node) { return tree.path_prob[static_cast<std::size_t>(node)]; };
  std::sort(ranking_.begin(), ranking_.end(), [&](std::int32_t a, std::int32_t b) {
    return prob(a) != prob(b) ? prob(a) > prob(b) : a < b;
  });
  double gain = 0.0;
  double best = -economics_.verify_cost(0);
  std::size_t keep = 0;
  for (std::size_t i = 0; i < ranking_.size(); ++i) {
    gain += economics_.node_gain(prob(ranking_[i]));
    const double net = gain - economics_.verify_cost(static_cast<std::int32_t>(i) + 1);
    if (net > best) {
      best = net;
      keep = i + 1;
    }
  }
  if (keep == ranking_.size()) return;
  ranking_.resize(keep);
  std::sort(ranking_.begin(), ranking_.end());
  new_index_.assign(static_cast<std::size_t>(tree.nodes()), 0);
  cut_.reset(tree.token[0]);
  for (const std::int32_t node : ranking_) {
    const auto n = static_cast<std::size_t>(node);
    const std::int32_t added =
        cut_.add(new_index_[static_cast<std::size_t>(tree.parent[n])], tree.token[n], tree.rank[n],
                 tree.draft_prob[n], tree.value[n]);
    cut_.source[static_cast<std::size_t>(added)] = tree.source[n];
    new_index_[n] = added;
  }
  std::swap(tree, cut_);
}

}  // namespace coppice
