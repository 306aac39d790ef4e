#include "drafting/batch_growth.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>

#include "drafting/valued_tree.h"

namespace coppice {

// Why this does not bias the text. Every decision is a function of what has been drawn before it,
// tokens and the numbers u that will judge them, and nothing drawn is dropped. Let x be a child of
// v, and H all that was drawn before x, in this tree and in those that grow together with it.
// Whether the judge comes to x, because it accepts v and all above it and refuses x's earlier
// siblings, is settled by H: it judges none of these by anything drawn later. Given H, x's token
// has the law of D without its earlier siblings' tokens, and its u is uniform, if no other text has
// the same noise. So what the judge does with x is as in a tree that was fixed beforehand. What it
// writes after v, once it has refused the children drawn so far, must have the law of the residual
// that their tokens leave. If a further child is drawn, at whatever time, it has that law given all
// that was drawn until then; if none ever is, the judge draws from the residual itself. Both hold
// for every history, hence no matter how the history decides which of them it is. So decisions may
// look at any u of what is drawn, a later sibling's, another branch's or another text's too, but at
// no number of what is not: not x's own before it is drawn, nor another step's, which decides what
// is still to be written. src/sizing/README.md has what follows for several texts.
//
// Where any tree is exact, none of this is needed: growth looks at children before it takes them,
// and drops in the end what is not worth its row.

void BatchGrowth::begin(std::int32_t most) {
  Grower::begin(most);
  lookahead_.reset();
  rounds_left_ = 0;
  least_kept_ = 0.0;
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

std::int32_t BatchGrowth::nodes() const {
  std::int32_t nodes = 0;
  for (const ValuedTree* const tree : trees_) nodes += tree->candidates().size();
  return nodes;
}

bool BatchGrowth::plan() {
  const std::int32_t size = nodes();
  if (size >= most_) return false;
  if (--rounds_left_ <= 0 || plan_.nodes == 0) {
    look_ahead(size);
    rounds_left_ = plan_.passes / 2;
  }
  added_ = 0;
  most_added_ = std::min(most_ - size, plan_.nodes);
  return plan_.nodes > 0;
}

void BatchGrowth::look_ahead(std::int32_t size) {
  open_.clear();
  priors_.clear();
  for (const ValuedTree* const tree : trees_) {
    const auto index = static_cast<std::int32_t>(priors_.size());
    // The root has a pass of its own, before any other.
    const std::int32_t root_passes = tree->drawn(0).passes;
    for (std::int32_t node = 0; tree->grows() && node < tree->candidates().nodes(); ++node) {
      open_.push_back(tree->drawn(node));
      open_.back().tree = index;
      if (node > 0) open_.back().passes += root_passes;
    }
    for (std::int32_t node = 0; tree->grows() && node < tree->candidates().nodes(); ++node) {
      if (tree->proposed(node).value <= 0.0) continue;
      open_.push_back(tree->proposed(node));
      open_.back().tree = index;
    }
    GrowthPrior prior = *tree->prior(tree->limits());
    prior.most -= tree->candidates().size();
    priors_.push_back(prior);
  }
  plan_ = lookahead_.best(open_, priors_, size, most_, passes_);
}

// If no pass is to come, all that is planned; else what the next one is to evaluate.
bool BatchGrowth::admits(const Offer& offer) const {
  const ValuedTree& tree = *trees_[offer.tree];
  if (added_ == most_added_ || !tree.has_room() || !is_planned(offer.value)) return false;
  const OpenPosition& drawn = tree.drawn(offer.node);
  if (offer.proposed) {
    // What is proposed is known already: nothing is won by waiting, but where it would come before
    // a drawn child that is likelier, and could not be dropped for it.
    const bool waits = !tree.looks() && plan_.passes > 0 && is_planned(drawn.value);
    return !waits || drawn.value <= offer.value;
  }
  if (drawn.passes > 0) return false;
  if (plan_.passes == 0) return true;
  return drawn.depth < tree.limits().max_depth &&
         is_planned(drawn.value * tree.calibration().position(0, drawn.depth + 1));
}

bool BatchGrowth::want() {
  plan_.nodes -= added_;
  if (plan_.passes > 0 && (added_ == 0 || next_pass_pays()) && want_planned()) return true;
  rounds_left_ = 0;  // tokens have said otherwise
  return false;
}

template <typename With>
void BatchGrowth::for_planned(const ValuedTree& tree, const With& with) const {
  if (!tree.grows() || !tree.has_room()) return;
  for (std::int32_t node = 0; node < tree.candidates().nodes(); ++node) {
    const OpenPosition& at = tree.drawn(node);
    if (at.passes > 0 && is_planned(at.value)) with(node, at.value);
  }
}

// Whether it does even if nothing follows.
bool BatchGrowth::next_pass_pays() const {
  const std::int32_t size = nodes();
  std::int32_t rows = 0;
  double gain = 0.0;
  for (const ValuedTree* const tree : trees_) {
    for_planned(*tree, [&](std::int32_t, double value) {
      gain += value;
      ++rows;
    });
  }
  return rows > 0 && gain > economics_.pass_cost(rows, passes_) +
                                economics_.verify_cost(size + rows) - economics_.verify_cost(size);
}

bool BatchGrowth::want_planned() {
  bool any = false;
  for (ValuedTree* const tree : trees_) {
    for_planned(*tree, [&](std::int32_t node, double) {
      tree->want(node);
      any = true;
    });
  }
  return any;
}

// Finds what is not worth its row.
void BatchGrowth::end() {
  values_.clear();
  for (const ValuedTree* const tree : trees_) {
    if (!tree->looks()) continue;
    const double weight = tree->limits().weight;
    for (std::size_t node = 1; node < tree->candidates().value.size(); ++node) {
      values_.push_back(weight * tree->candidates().value[node]);
    }
  }
  std::sort(values_.begin(), values_.end(), std::greater<>());
  std::int32_t size = nodes();
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

void BatchGrowth::keep(const ValuedTree& tree, std::vector<std::int32_t>& kept) const {
  for (std::int32_t node = 1; node < tree.candidates().nodes(); ++node) {
    const double value =
        tree.limits().weight * tree.candidates().value[static_cast<std::size_t>(node)];
    if (!tree.looks() || value >= least_kept_) kept.push_back(node);
  }
}

}  // namespace coppice
