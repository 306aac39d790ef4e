#include "drafting/batch_growth.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "drafting/cost_driven_dyspec.h"

namespace coppice {

void BatchGrowth::begin(std::int32_t most) {
  most_ = most;
  trees_.clear();
  lookahead_.reset();
  rounds_left_ = passes_ = 0;
  taken_ = false;
  least_kept_ = 0.0;
}

std::int32_t BatchGrowth::nodes() const {
  std::int32_t nodes = 0;
  for (const CostDrivenDyspec* const tree : trees_) nodes += tree->candidates().size();
  return nodes;
}

void BatchGrowth::choose(std::span<const GrowthPrior> texts, std::vector<char>& chosen) {
  open_.clear();
  for (const GrowthPrior& text : texts) {
    const auto index = static_cast<std::int32_t>(open_.size());
    const bool can = text.most > 0 && text.most_depth > 0;
    const double value = can ? text.weight * text.calibration->position(0, 1) : 0.0;
    open_.push_back({value, text.weight, 1, 0, 1, index});
  }
  const GrowthPlan best = lookahead_.best(open_, texts, 0, most_, 0);
  chosen.assign(texts.size(), 0);
  for (std::size_t t = 0; best.passes > 0 && t < texts.size(); ++t) {
    chosen[t] = open_[t].value >= best.least ? 1 : 0;
  }
}

void BatchGrowth::grow() {
  if (!std::exchange(taken_, false)) return;
  ++passes_;
  std::int32_t size = nodes();
  while (size < most_) {
    if (--rounds_left_ <= 0 || plan_.nodes == 0) {
      plan(size);
      rounds_left_ = plan_.passes / 2;
    }
    if (plan_.nodes == 0) break;
    const std::int32_t drawn = draw_planned(std::min(most_ - size, plan_.nodes));
    size += drawn;
    plan_.nodes -= drawn;
    if (plan_.passes > 0 && (drawn == 0 || next_pass_pays(size)) && want_planned()) return;
    rounds_left_ = 0;  // tokens have said otherwise
  }
  cut(size);
}

// Where any tree is exact, what has turned out not to be worth its row is dropped.
void BatchGrowth::cut(std::int32_t size) {
  values_.clear();
  for (const CostDrivenDyspec* const tree : trees_) {
    if (!tree->looks()) continue;
    const double weight = tree->limits().weight;
    for (std::size_t node = 1; node < tree->candidates().value.size(); ++node) {
      values_.push_back(weight * tree->candidates().value[node]);
    }
  }
  std::sort(values_.begin(), values_.end(), std::greater<>());
  const double whole = economics_.verify_cost(size);
  double lost = 0.0, best = 0.0;
  least_kept_ = 0.0;
  while (!values_.empty()) {
    lost += values_.back();
    values_.pop_back();
    const double won = whole - economics_.verify_cost(--size) - lost;
    if (won <= best) continue;
    best = won;
    least_kept_ = values_.empty() ? std::numeric_limits<double>::infinity() : values_.back();
  }
}

void BatchGrowth::plan(std::int32_t size) {
  open_.clear();
  priors_.clear();
  for (const CostDrivenDyspec* const tree : trees_) {
    if (tree->grows()) {
      const auto index = static_cast<std::int32_t>(priors_.size());
      // The root has a pass of its own, before any other.
      const std::int32_t root_passes = tree->open()[0].passes;
      for (std::size_t node = 0; node < tree->open().size(); ++node) {
        open_.push_back(tree->open()[node]);
        open_.back().tree = index;
        if (node > 0) open_.back().passes += root_passes;
      }
      for (std::int32_t node = 0; node < tree->candidates().nodes(); ++node) {
        const OpenPosition* const proposed = tree->proposed(node);
        if (proposed == nullptr) continue;
        open_.push_back(*proposed);
        open_.back().tree = index;
      }
    }
    GrowthPrior prior = tree->prior(tree->limits());
    prior.most -= tree->candidates().size();
    priors_.push_back(prior);
  }
  plan_ = lookahead_.best(open_, priors_, size, most_, passes_);
}

// If no pass is to come, all that is planned; else what the next one is to evaluate.
bool BatchGrowth::is_drawn_now(const CostDrivenDyspec& tree, std::int32_t node) const {
  const OpenPosition& at = tree.open()[static_cast<std::size_t>(node)];
  if (at.passes > 0 || !is_planned(at.value)) return false;
  if (plan_.passes == 0) return true;
  return at.depth < tree.limits().max_depth &&
         is_planned(at.value * tree.calibration().position(0, at.depth + 1));
}

// Returns how many there were.
std::int32_t BatchGrowth::draw_planned(std::int32_t most) {
  heap_.clear();
  const auto push = [&](double value, std::size_t place, std::int32_t node, bool proposed) {
    heap_.push_back({value, place, node, proposed});
    std::push_heap(heap_.begin(), heap_.end());
  };
  const auto offer = [&](CostDrivenDyspec& tree, std::size_t place, std::int32_t node) {
    if (is_drawn_now(tree, node)) {
      push(tree.open()[static_cast<std::size_t>(node)].value, place, node, false);
    }
  };
  // What is proposed is known already: nothing is won by waiting, but where it would come before a
  // drawn child that is likelier, and could not be dropped for it.
  const auto offer_proposal = [&](CostDrivenDyspec& tree, std::size_t place, std::int32_t node) {
    const OpenPosition* const at = tree.proposed(node);
    if (at == nullptr || !is_planned(at->value)) return;
    const double drawn = tree.open()[static_cast<std::size_t>(node)].value;
    const bool waits = !tree.looks() && plan_.passes > 0 && is_planned(drawn);
    if (!waits || drawn <= at->value) push(at->value, place, node, true);
  };
  for (std::size_t t = 0; t < trees_.size(); ++t) {
    CostDrivenDyspec& tree = *trees_[t];
    for (std::int32_t node = 0; tree.grows() && node < tree.candidates().nodes(); ++node) {
      offer(tree, t, node);
      offer_proposal(tree, t, node);
    }
  }
  std::int32_t drawn = 0;
  while (!heap_.empty() && drawn < most) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Drawable next = heap_.back();
    heap_.pop_back();
    CostDrivenDyspec& tree = *trees_[next.tree];
    if (!tree.has_room()) continue;
    if (next.proposed) {
      // Worth less since, for the node has got another child, or gone: offered anew.
      const OpenPosition* const at = tree.proposed(next.node);
      if (at == nullptr) continue;
      if (at->value < next.value) {
        offer_proposal(tree, next.tree, next.node);
        continue;
      }
      tree.take_proposal(next.node);
      ++drawn;
      offer_proposal(tree, next.tree, next.node);
      offer_proposal(tree, next.tree, tree.candidates().size());
      continue;
    }
    if (tree.has_proposals() &&
        tree.open()[static_cast<std::size_t>(next.node)].value < next.value) {
      offer(tree, next.tree, next.node);
      continue;
    }
    if (tree.draw(next.node)) {
      ++drawn;
      offer_proposal(tree, next.tree, tree.candidates().size());
    }
    // Where it cannot look, a sibling waits: what follows may be worth more by then.
    if (tree.looks()) offer(tree, next.tree, next.node);
  }
  return drawn;
}

// Whether it does even if nothing follows.
bool BatchGrowth::next_pass_pays(std::int32_t size) const {
  std::int32_t rows = 0;
  double gain = 0.0;
  for (const CostDrivenDyspec* const tree : trees_) {
    if (!tree->grows() || !tree->has_room()) continue;
    for (const OpenPosition& at : tree->open()) {
      if (at.passes == 0 || !is_planned(at.value)) continue;
      gain += at.value;
      ++rows;
    }
  }
  return rows > 0 && gain > economics_.pass_cost(rows, passes_) +
                                economics_.verify_cost(size + rows) - economics_.verify_cost(size);
}

bool BatchGrowth::want_planned() {
  bool any = false;
  for (CostDrivenDyspec* const tree : trees_) {
    if (!tree->grows() || !tree->has_room()) continue;
    for (std::size_t node = 0; node < tree->open().size(); ++node) {
      const OpenPosition& at = tree->open()[node];
      if (at.passes == 0 || !is_planned(at.value)) continue;
      tree->want(static_cast<std::int32_t>(node));
      any = true;
    }
  }
  return any;
}

}  // namespace coppice
