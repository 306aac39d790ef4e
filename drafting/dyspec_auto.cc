#include "drafting/dyspec_auto.h"

#include <algorithm>
#include <numeric>

namespace coppice {
namespace {

// Highest gain first; ties by node and rank, never by token.
template <typename Position>
bool lower(const Position& a, const Position& b) {
  if (a.gain != b.gain) return a.gain < b.gain;
  if (a.node != b.node) return a.node > b.node;
  return a.rank > b.rank;
}

}  // namespace

DyspecAutoPolicy::DyspecAutoPolicy(const GrowthEconomics& economics,
                                   const AcceptanceCalibration& calibration, bool hindsight)
    : economics_(economics),
      calibration_(calibration),
      values_(&calibration, hindsight),
      hindsight_(hindsight) {}

void DyspecAutoPolicy::grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) {
  frontier_.assign(1, 0);
  values_.reset();
  for (std::int32_t passes = 0; select_frontier(tree, limits, passes); ++passes) {
    source.evaluate(tree, selected_);
    draw_children(source, limits, tree);
  }
  if (hindsight_) cut_in_hindsight(tree);
}

// The frontier's nodes whose first child can pay for its row, if together they also pay for the
// pass. The root's pass is the engine's decision, made before the step.
bool DyspecAutoPolicy::select_frontier(const TokenTree& tree, const GrowthLimits& limits,
                                       std::int32_t passes) {
  selected_.clear();
  if (passes >= limits.max_depth || tree.size() >= limits.max_size) return false;
  if (passes == 0) {
    selected_ = frontier_;
    return true;
  }
  double surplus = 0.0;
  for (const std::int32_t node : frontier_) {
    const double first_child =
        calibration_.position(0, tree.depth[static_cast<std::size_t>(node)] + 1);
    const double net = values_.estimate(node) * first_child - economics_.node_cost(tree.size());
    if (net <= 0.0) continue;
    surplus += net;
    selected_.push_back(node);
  }
  return !selected_.empty() &&
         surplus > economics_.pass_cost(static_cast<std::int32_t>(selected_.size()));
}

void DyspecAutoPolicy::push_position(double gain, std::int32_t node, std::int32_t rank) {
  heap_.push_back({gain, node, rank});
  std::push_heap(heap_.begin(), heap_.end(), lower<Position>);
}

void DyspecAutoPolicy::draw_children(DraftSource& source, const GrowthLimits& limits,
                                     TokenTree& tree) {
  frontier_.clear();
  heap_.clear();
  for (const std::int32_t node : selected_) push_position(values_.first_child(tree, node), node, 0);
  while (!heap_.empty() && tree.size() < limits.max_size) {
    std::pop_heap(heap_.begin(), heap_.end(), lower<Position>);
    const Position position = heap_.back();
    heap_.pop_back();
    const double cost = economics_.node_cost(tree.size());
    if (position.gain <= cost) break;
    const auto drawn = source.child(tree, position.node, position.rank);
    if (!drawn) continue;
    const double estimate = values_.child(tree, position.node, position.rank, drawn->prob);
    // In hindsight children come in falling order: the first that does not pay ends its family.
    if (hindsight_ && estimate <= cost) continue;
    frontier_.push_back(
        tree.add(position.node, drawn->token, position.rank, drawn->prob, position.gain));
    values_.added(tree);
    push_position(values_.next_sibling(tree, position.node, position.rank + 1, position.gain),
                  position.node, position.rank + 1);
  }
}

// Keeps the nodes of highest estimate, as many as pay best at the measured cost of a verify
// pass. A child's estimate never exceeds its parent's and its index is higher, so what is kept
// is a tree; a sibling of higher rank is kept only with those before it.
void DyspecAutoPolicy::cut_in_hindsight(TokenTree& tree) {
  // Learned acceptance need not fall with rank, nor with depth once an elder sibling has held a
  // parent down: hold every node below both. (new_index_: the youngest child so far.)
  const auto held = [&](std::int32_t node) { return held_[static_cast<std::size_t>(node)]; };
  held_.assign(1, 1.0);
  new_index_.assign(static_cast<std::size_t>(tree.nodes()), -1);
  for (std::int32_t node = 1; node < tree.nodes(); ++node) {
    const std::int32_t parent = tree.parent[static_cast<std::size_t>(node)];
    const std::int32_t elder = new_index_[static_cast<std::size_t>(parent)];
    held_.push_back(
        std::min({values_.estimate(node), held(parent), held(elder < 0 ? parent : elder)}));
    new_index_[static_cast<std::size_t>(parent)] = node;
  }
  ranking_.resize(static_cast<std::size_t>(tree.size()));
  std::iota(ranking_.begin(), ranking_.end(), 1);
  std::sort(ranking_.begin(), ranking_.end(), [&](std::int32_t a, std::int32_t b) {
    return held(a) != held(b) ? held(a) > held(b) : a < b;
  });
  double gain = 0.0;
  double best = -economics_.verify_cost(0);
  std::size_t keep = 0;
  for (std::size_t i = 0; i < ranking_.size(); ++i) {
    gain += held(ranking_[i]);
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
