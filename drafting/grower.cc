#include "drafting/grower.h"

#include <algorithm>
#include <utility>

#include "drafting/valued_tree.h"

namespace coppice {

void Grower::begin(std::int32_t most) {
  most_ = most;
  trees_.clear();
  passes_ = 0;
  taken_ = false;
}

void Grower::grow() {
  if (!std::exchange(taken_, false)) return;
  ++passes_;
  while (plan()) {
    add_admitted();
    if (want()) return;
  }
  end();
}

void Grower::offer(std::size_t tree, std::int32_t node, bool proposed) {
  const Offer offered{trees_[tree]->value(node, proposed), tree, node, proposed};
  if (offered.value <= 0.0 || !admits(offered)) return;
  heap_.push_back(offered);
  std::push_heap(heap_.begin(), heap_.end(),
                 [this](const Offer& a, const Offer& b) { return is_worse(a, b); });
}

void Grower::add_admitted() {
  heap_.clear();
  for (std::size_t t = 0; t < trees_.size(); ++t) {
    const ValuedTree& tree = *trees_[t];
    for (std::int32_t node = 0; tree.grows() && node < tree.candidates().nodes(); ++node) {
      offer(t, node, false);
      offer(t, node, true);
    }
  }
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(),
                  [this](const Offer& a, const Offer& b) { return is_worse(a, b); });
    const Offer next = heap_.back();
    heap_.pop_back();
    if (!admits(next)) continue;
    ValuedTree& tree = *trees_[next.tree];
    // Worth less, for the node has got another child since, or by the child's token: offered anew.
    if (tree.look(next.node, next.proposed) < next.value) {
      offer(next.tree, next.node, next.proposed);
      continue;
    }
    if (tree.add(next.node, next.proposed)) {
      note_added(next);
      offer(next.tree, tree.candidates().size(), true);
    }
    if (next.proposed || !tree.siblings_wait()) offer(next.tree, next.node, next.proposed);
  }
}

}  // namespace coppice
