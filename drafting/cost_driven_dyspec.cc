#include "drafting/cost_driven_dyspec.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "drafting/proposer.h"

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

void CostDrivenDyspec::begin(const GrowthLimits& limits, TokenId root) {
  DraftPolicy::begin(limits, root);
  values_.reset();
  open_.assign(1, {1.0, 1.0, 1, 0, 1});
  seen_.assign(1, std::nullopt);
  proposed_.assign(1, {});
  proposals_.assign(1, -1);
  proposals_believed_.assign(1, 0.0);
  believed_.assign(1, 0.0);
  source_ = nullptr;
  if (limits.common == nullptr) alone_.begin(limits.max_size);
  group().join(*this);
}

// Where something is proposed, the draft's first pass has to pay beside it.
void CostDrivenDyspec::propose(DraftSource& source) {
  if (frontier_.empty()) return;
  revalue(0, source);
  if (limits_.drafts && proposals_[0] < 0) return;
  frontier_.clear();
  source_ = &source;
  group().note_taken();
  if (limits_.common == nullptr) alone_.grow();
}

void CostDrivenDyspec::take(DraftSource& source) {
  const bool first = candidates_.size() == 0;
  source_ = nullptr;
  bool heard = false;
  for (const std::int32_t node : frontier_) {
    open_[static_cast<std::size_t>(node)].passes = 0;
    if (hear(node, source)) heard = true;
  }
  if (heard) {
    revalue_all(source);
  } else {
    for (const std::int32_t node : frontier_) revalue(node, source);
  }
  frontier_.clear();
  if (first) draw(0, source);  // every tree has a node
  source_ = &source;
  group().note_taken();
  if (limits_.common == nullptr) alone_.grow();
}

void CostDrivenDyspec::finish(TokenTree& tree) {
  if (!looks_) return DraftPolicy::finish(tree);
  kept_.clear();
  for (std::int32_t node = 1; node < candidates_.nodes(); ++node) {
    const double value = limits_.weight * candidates_.value[static_cast<std::size_t>(node)];
    if (value >= group().least_kept()) kept_.push_back(node);
  }
  tree.assign_part(candidates_, kept_);
}

// What is expected of a node's next child.
void CostDrivenDyspec::revalue(std::int32_t node, DraftSource& source) {
  const auto n = static_cast<std::size_t>(node);
  OpenPosition& at = open_[n];
  at.value = 0.0;
  proposals_[n] = -1;
  if (at.depth > limits_.max_depth) return;
  at.reach = limits_.weight * values_.reach(node);
  const bool may_branch = last_rank_ > 0 || children(node) == 0;
  if (at.rank > last_rank_ || !may_branch || !limits_.drafts) {
    seen_[n] = std::nullopt;
  } else if (at.passes > 0) {
    at.value = at.reach * calibration_.position(at.rank, at.depth);
  } else if (looks_) {
    if (!seen_[n]) seen_[n] = source.child(candidates_, node, children(node));
    if (seen_[n]) at.value = limits_.weight * values_.child(node, at.rank, *seen_[n]);
  } else {
    const double share = source.expected_share(node);
    at.value = at.reach * (share < 0.0 ? calibration_.position(at.rank, at.depth)
                                       : calibration_.child(at.rank, share));
  }
  if (limits_.proposer != nullptr && may_branch) revalue_proposal(node, source);
}

void CostDrivenDyspec::revalue_proposal(std::int32_t node, DraftSource& source) {
  const auto n = static_cast<std::size_t>(node);
  const auto found = limits_.proposer->next(candidates_, node, seen_[n] ? seen_[n]->token : -1);
  if (!found) return;
  const OpenPosition& at = open_[n];
  double chance = found->chance;
  proposals_believed_[n] = 0.0;
  if (at.passes == 0 && limits_.drafts) {
    const double belief = source.belief_of(candidates_, node, found->token);
    if (belief >= 0.0) {
      chance = limits_.proposer->chance_beside(node, found->token, chance, belief);
      proposals_believed_[n] = belief;
    }
  }
  proposals_[n] = found->token;
  proposed_[n] = {limits_.weight * values_.certain(node, chance),
                  at.reach,
                  at.depth,
                  0,
                  0,
                  0,
                  true,
                  found->follow};
}

void CostDrivenDyspec::take_proposal(std::int32_t parent) {
  const auto p = static_cast<std::size_t>(parent);
  const TokenId token = proposals_[p];
  const OpenPosition at = proposed_[p];
  candidates_.add_certain(parent, token, children(parent), at.value / limits_.weight,
                          at.reach > 0.0 ? at.value / at.reach : 0.0);
  believed_.push_back(proposals_believed_[p]);
  source_->exclude(parent, token);
  added(parent, *source_);
}

// A node has been evaluated: what the draft believes of children that it did not draw.
// True: it changes what they are worth.
bool CostDrivenDyspec::hear(std::int32_t node, DraftSource& source) {
  bool heard = false;
  for (std::int32_t child = candidates_.first_child[static_cast<std::size_t>(node)]; child >= 0;
       child = candidates_.next_sibling[static_cast<std::size_t>(child)]) {
    const auto c = static_cast<std::size_t>(child);
    if (!candidates_.is_certain(child)) continue;
    const double belief = source.belief_of(candidates_, node, candidates_.token[c]);
    if (belief < 0.0) continue;
    candidates_.belief[c] = static_cast<float>(limits_.proposer->chance_beside(
        node, candidates_.token[c], static_cast<double>(candidates_.belief[c]), belief));
    believed_[c] = belief;
    heard = true;
  }
  return heard;
}

void CostDrivenDyspec::revalue_all(DraftSource& source) {
  values_.reset();
  for (std::int32_t node = 1; node < candidates_.nodes(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    values_.added(candidates_, node, believed_[n]);
    candidates_.value[n] = values_.estimate(node);
  }
  for (std::int32_t node = 0; node < candidates_.nodes(); ++node) revalue(node, source);
}

// The last candidate, a child of `parent`, takes its place among open positions.
void CostDrivenDyspec::added(std::int32_t parent, DraftSource& source) {
  values_.added(candidates_, candidates_.size(), believed_.back());
  open_.push_back({0.0, 0.0, open_[static_cast<std::size_t>(parent)].depth + 1, 0, 1});
  seen_.emplace_back();
  proposed_.emplace_back();
  proposals_.push_back(-1);
  proposals_believed_.push_back(0.0);
  revalue(candidates_.size(), source);
  revalue(parent, source);
}

void CostDrivenDyspec::want(std::int32_t node) {
  if (open_[0].passes > 0) {  // the root has a pass of its own
    frontier_.assign(1, 0);
    return;
  }
  const auto at = std::lower_bound(frontier_.begin(), frontier_.end(), node);
  if (at != frontier_.end() && *at == node) return;
  frontier_.insert(at, node);
  const std::int32_t parent = candidates_.parent[static_cast<std::size_t>(node)];
  if (parent >= 0 && open_[static_cast<std::size_t>(parent)].passes > 0) want(parent);
}

bool CostDrivenDyspec::draw(std::int32_t parent, DraftSource& source) {
  const auto p = static_cast<std::size_t>(parent);
  const OpenPosition at = open_[p];
  const auto drawn = looks_ ? std::exchange(seen_[p], std::nullopt)
                            : source.child(candidates_, parent, children(parent));
  if (!drawn) {
    open_[p].value = 0.0;
    return false;
  }
  candidates_.add(parent, drawn->token, children(parent), drawn->prob, at.value / limits_.weight,
                  drawn->belief, drawn->uniform);
  ++open_[p].rank;
  believed_.push_back(0.0);
  added(parent, source);
  return true;
}

}  // namespace coppice
