#include "drafting/valued_tree.h"

#include <algorithm>
#include <utility>

#include "drafting/proposer.h"

namespace coppice {

void ValuedTree::begin(const GrowthLimits& limits, TokenId root) {
  DraftPolicy::begin(limits, root);
  values_.reset(limits.proposer != nullptr && limits.drafts);
  places_.assign(1, {});
  places_[0].drawn = {1.0, 1.0, 1, 0, 1};
  places_[0].looked = is_by_costs();
  source_ = nullptr;
  if (&grower() == own_.get()) own_->begin(limits.max_size);
  grower().join(*this);
}

void ValuedTree::grow(DraftSource& source) {
  frontier_.clear();
  source_ = &source;
  grower().note_taken();
  if (&grower() == own_.get()) own_->grow();
}

// By costs, where something is proposed, the draft's first pass has to pay beside it.
void ValuedTree::propose(DraftSource& source) {
  if (!is_by_costs() || frontier_.empty()) return;
  revalue(0, source);
  if (limits_.drafts && at(0).proposal < 0) return;
  grow(source);
}

void ValuedTree::take(DraftSource& source) {
  const bool first = candidates_.size() == 0;
  source_ = nullptr;
  bool heard = false;
  for (const std::int32_t node : frontier_) {
    at(node).drawn.passes = 0;
    if (hear(node, source)) heard = true;
  }
  if (heard) {
    revalue_all(source);
  } else {
    for (const std::int32_t node : frontier_) revalue(node, source);
  }
  if (first && is_by_costs()) add(0, false, source);  // every tree has a node
  grow(source);
}

void ValuedTree::finish(TokenTree& tree) {
  kept_.clear();
  grower().keep(*this, kept_);
  tree.assign_part(candidates_, kept_);
}

// What is expected of a node's next children.
void ValuedTree::revalue(std::int32_t node, DraftSource& source) {
  Place& place = at(node);
  OpenPosition& next = place.drawn;
  next.value = 0.0;
  next.certain = false;
  place.proposed.value = 0.0;
  place.proposal = -1;
  if (next.depth > limits_.max_depth) return;
  next.reach = limits_.weight * values_.reach(node);
  const bool may_branch = last_rank_ > 0 || children(node) == 0;
  if (next.rank > last_rank_ || !may_branch || !limits_.drafts) {
    place.seen = std::nullopt;
  } else if (looks() && next.passes == 0 && place.looked) {
    if (!place.seen) place.seen = source.child(candidates_, node, children(node));
    if (place.seen) next.value = limits_.weight * values_.child(node, next.rank, *place.seen);
  } else {
    next.value = value_before_draw(node, source);
  }
  if (limits_.proposer != nullptr && may_branch) revalue_proposal(node, source);
  if (!is_by_costs()) choose_one(node);
}

double ValuedTree::look(std::int32_t node, bool proposal) {
  if (looks() && !std::exchange(at(node).looked, true)) revalue(node, *source_);
  return value(node, proposal);
}

double ValuedTree::value_before_draw(std::int32_t node, DraftSource& source) {
  const OpenPosition& next = at(node).drawn;
  const bool evaluated = next.passes == 0;
  double share = -1.0;
  if (evaluated && !looks() && values_.asks_for_shares()) share = source.expected_share(node);
  if (is_by_costs()) return next.reach * values_.chance(next.rank, next.depth, share);
  if (node == 0) shares_known_ = share >= 0.0;
  // No less than it will be, so that whatever has a place is evaluated.
  if (!evaluated && shares_known_) share = 1.0;
  return values_.value(node, looks() ? 1.0 : values_.chance(next.rank, next.depth, share));
}

void ValuedTree::revalue_proposal(std::int32_t node, DraftSource& source) {
  Place& place = at(node);
  const auto found = limits_.proposer->next(candidates_, node, place.seen ? place.seen->token : -1);
  if (!found) return;
  const OpenPosition& next = place.drawn;
  place.proposal = found->token;
  place.chance = found->chance;
  place.heard = 0.0;
  if (is_by_costs() && next.passes == 0 && limits_.drafts) {
    const double belief = source.belief_of(candidates_, node, found->token);
    if (belief >= 0.0) {
      place.chance = limits_.proposer->chance_beside(node, found->token, found->chance, belief);
      place.heard = belief;
    }
  }
  place.proposed = {limits_.weight * values_.certain(node, place.chance), next.reach, next.depth};
  place.proposed.certain = true;
  place.proposed.follow = found->follow;
}

// By size: leaves the better of a node's two positions, with a value that is no larger than its
// parent's and the one before it.
void ValuedTree::choose_one(std::int32_t node) {
  Place& place = at(node);
  const auto n = static_cast<std::size_t>(node);
  const std::int32_t last = candidates_.last_child[n];
  const double before = candidates_.value[last < 0 ? n : static_cast<std::size_t>(last)];
  const bool looks_at_it = looks() && limits_.drafts;
  const double most = looks_at_it ? candidates_.value[n] : before;
  const double drawn = std::min(place.drawn.value, most);
  const double proposed = std::min(std::exchange(place.proposed.value, 0.0), most);
  place.drawn.certain = proposed > drawn;
  place.drawn.value = std::min({std::max(drawn, proposed), before, place.drawn.reach});
  // Every tree has a node.
  if (node == 0 && last < 0 && !looks_at_it && place.drawn.value > 0.0) place.drawn.value = 1.0;
}

// A node has been evaluated: what the draft believes of children that it did not draw.
// True: it changes what they are worth.
bool ValuedTree::hear(std::int32_t node, DraftSource& source) {
  bool heard = false;
  for (std::int32_t child = candidates_.first_child[static_cast<std::size_t>(node)]; child >= 0;
       child = candidates_.next_sibling[static_cast<std::size_t>(child)]) {
    const auto c = static_cast<std::size_t>(child);
    if (!candidates_.is_certain(child)) continue;
    const double belief = source.belief_of(candidates_, node, candidates_.token[c]);
    if (belief < 0.0) continue;
    candidates_.belief[c] = static_cast<float>(limits_.proposer->chance_beside(
        node, candidates_.token[c], static_cast<double>(candidates_.belief[c]), belief));
    places_[c].believed = belief;
    heard = true;
  }
  return heard;
}

void ValuedTree::revalue_all(DraftSource& source) {
  values_.reset();
  for (std::int32_t node = 1; node < candidates_.nodes(); ++node) {
    values_.added(candidates_, node, at(node).believed);
    candidates_.value[static_cast<std::size_t>(node)] = values_.estimate(node);
  }
  for (std::int32_t node = 0; node < candidates_.nodes(); ++node) revalue(node, source);
}

void ValuedTree::want(std::int32_t node) {
  if (at(0).drawn.passes > 0) {  // the root has a pass of its own
    frontier_.assign(1, 0);
    return;
  }
  const auto place = std::lower_bound(frontier_.begin(), frontier_.end(), node);
  if (place != frontier_.end() && *place == node) return;
  frontier_.insert(place, node);
  const std::int32_t parent = candidates_.parent[static_cast<std::size_t>(node)];
  if (parent >= 0 && at(parent).drawn.passes > 0) want(parent);
}

bool ValuedTree::add(std::int32_t parent, bool proposal, DraftSource& source) {
  Place& place = at(parent);
  const std::int32_t rank = children(parent);
  const double worth = value(parent, proposal) / limits_.weight;
  Place below;
  below.drawn = {0.0, 0.0, place.drawn.depth + 1, 0, 1};
  below.looked = is_by_costs();
  if (proposal || place.drawn.certain) {
    candidates_.add_certain(parent, place.proposal, rank, worth, place.chance);
    source.exclude(parent, place.proposal);
    below.believed = place.heard;
  } else {
    const auto drawn =
        looks() ? std::exchange(place.seen, std::nullopt) : source.child(candidates_, parent, rank);
    if (!drawn) {
      place.drawn.value = 0.0;
      return false;
    }
    candidates_.add(parent, drawn->token, rank, drawn->prob, worth, drawn->belief, drawn->uniform);
    ++place.drawn.rank;
    place.looked = is_by_costs();
  }
  values_.added(candidates_, candidates_.size(), below.believed);
  places_.push_back(below);
  revalue(candidates_.size(), source);
  revalue(parent, source);
  return true;
}

}  // namespace coppice
