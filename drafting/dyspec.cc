#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "drafting/batch_growth.h"
#include "drafting/policy.h"
#include "drafting/positions.h"
#include "drafting/valued_tree.h"

namespace coppice {
namespace {

// DySpec's Algorithm 1 draws the position of the highest value, max_size times, and calls the
// draft for every new node. The same tree is grown here in one call per depth, for DySpec's values
// and for any others that drafting/position_values.h gives.
//
// Let F be the first positions, in the order of drafting/positions.h, of all that exist (whose
// parent's D has mass left for them) and that the fixed limits admit: max_size of them, or fewer if
// the next one's value is below min_value. Algorithm 1 pops positions in exactly that order,
// because a position's children and next sibling come after it; so its tree is F. Here positions
// are drawn while they have a place. Drawing more only moves places back, so what has lost its
// place is not in F, and neither are its children and later siblings. A node whose first child
// would already have none need not be evaluated. A node that is not evaluated at its first chance
// never will be, hence round r evaluates nodes of depth r - 1 only.
//
// Some tokens are drawn and then dropped. This does not bias what the tree's tokens are: whether
// a position x is in F is decided by the positions before x. With each of them come its token and,
// under rejection, the number u that will judge that token; these determine which positions exist
// and what they are worth. x's own value and existence follow from its ancestors, their earlier
// siblings and its own, which are among them. Given all of these, x's token is still distributed
// as D without its earlier siblings' tokens, and x's own u is still uniform, whether or not x is in
// F: membership looks at neither. Positions outside F are seen by nobody. What the judge writes
// then has the target's law: the residual that x's token is judged against is a function of the
// earlier siblings' tokens, given that they are refused, not of how narrowly; and below an accepted
// node fresh tokens are judged by fresh numbers. So growth may look at the u of ancestors and of
// earlier siblings exactly as at their tokens. It may not look at x's own before x has its place,
// nor at a later sibling's or at another step's, which decide what is still to be written. (Below x
// a later sibling's may matter: once x is accepted it judges nothing. Prices learned by the clock
// come from all texts of an engine: their seeds and streams are to differ.) (A rule
// that looks at a token it may drop, say one that picks the best size from the finished list, lacks
// this property too.)
//
// Proposed children (drafting/proposer.h) are children as others are: of a position's next child it
// is settled beforehand, by ancestors and earlier siblings, whether it is drawn or the proposer's,
// whichever is worth more, and its value is the larger one. Given these, a proposed token is
// certain.
//
// Looking ahead, where any tree is exact, lowers a position's value to its drawn child's estimate.
// F is then the first nodes by these values, and is found in the same way: a value before the draw
// bounds the one after it, and both those of later siblings and of descendants.
class SizedGrowth final : public Grower {
 public:
  void begin(std::int32_t most) override {
    Grower::begin(most);
    placed_.clear();
  }
  void keep(const ValuedTree&, std::vector<std::int32_t>& kept) const override {
    for (const Position& position : placed_) kept.push_back(position.node);
  }

 private:
  ValuedTree& tree() const { return *trees_[0]; }
  auto in_order() const {
    return
        [this](const Position& a, const Position& b) { return before(tree().candidates(), a, b); };
  }
  Position position_of(const Offer& offer) const {
    return {offer.value, tree().drawn(offer.node).depth, offer.node, tree().children(offer.node)};
  }

  bool plan() override {
    dropped_.clear();
    first_new_ = tree().candidates().nodes();
    return true;
  }
  bool admits(const Offer& offer) const override {
    return tree().drawn(offer.node).passes == 0 && has_place(position_of(offer));
  }
  bool comes_after(const Offer& a, const Offer& b) const override {
    return before(tree().candidates(), position_of(b), position_of(a));
  }

  // Whether a node of this value pays for a tree's place, counted from 0.
  bool pays(double value, std::size_t place) const {
    const auto size = static_cast<std::int32_t>(place);
    return value > 0.0 && value >= tree().limits().min_value && size < most_;
  }

  // (If a node's child has a place, so has the node, which comes before.)
  bool has_place(const Position& position) const {
    if (pays(position.value, placed_.size())) return true;
    return !is_last(position) && pays(position.value, 0);  // any place but the last one will do
  }

  bool is_last(const Position& position) const {
    return placed_.empty() || !before(tree().candidates(), position, placed_.back());
  }

  // Gives the last candidate its place; others may lose theirs.
  void note_added(const Offer& offer) override {
    const TokenTree& candidates = tree().candidates();
    const Position added{offer.value, candidates.depth.back(), offer.node, candidates.rank.back(),
                         candidates.size()};
    const auto place = is_last(added)
                           ? placed_.end()
                           : std::upper_bound(placed_.begin(), placed_.end(), added, in_order());
    placed_.insert(place, added);
    while (!placed_.empty() && !pays(placed_.back().value, placed_.size() - 1)) {
      dropped_.push_back(placed_.back().node);
      placed_.pop_back();
    }
  }

  // The new nodes whose first child has a place.
  bool want() override {
    tree().forget(dropped_);  // so that never more than max_size nodes hold draft KV
    for (std::int32_t node = first_new_; node < tree().candidates().nodes(); ++node) {
      if (has_place(position_of({tree().value(node, false), 0, node}))) tree().want(node);
    }
    return true;
  }

  std::vector<Position> placed_;       // drawn positions that have a place, in order
  std::vector<std::int32_t> dropped_;  // nodes that the last draws pushed out
  std::int32_t first_new_ = 0;         // of the nodes that the last draws added
};

}  // namespace

std::unique_ptr<DraftPolicy> make_dyspec_policy(const DyspecRule& rule) {
  if (rule.economics == nullptr) {
    return std::make_unique<ValuedTree>("dyspec", rule, std::numeric_limits<std::int32_t>::max(),
                                        std::make_unique<SizedGrowth>());
  }
  return std::make_unique<ValuedTree>("dyspec", rule, last_useful_rank,
                                      std::make_unique<BatchGrowth>(*rule.economics));
}

}  // namespace coppice
