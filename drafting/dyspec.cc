#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "drafting/cost_driven_dyspec.h"
#include "drafting/policy.h"
#include "drafting/position_values.h"
#include "drafting/positions.h"
#include "drafting/proposer.h"

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
class DyspecPolicy final : public DraftPolicy {
 public:
  explicit DyspecPolicy(const DyspecRule& rule) : values_(rule.calibration, rule.any_tree) {}
  std::string name() const override { return "dyspec"; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    placed_.clear();
    waiting_.clear();
    values_.reset(limits.proposer != nullptr && limits.drafts);
  }

  void take(DraftSource& source) override {
    const std::int32_t first_new = candidates_.nodes();
    draw(source);
    source.forget(dropped_);  // so that never more than max_size nodes hold draft KV
    choose_wanted(first_new);
  }

  void finish(TokenTree& tree) override {
    kept_.clear();
    for (const Position& position : placed_) kept_.push_back(position.node);
    tree.assign_part(candidates_, kept_);
  }

 private:
  auto in_order() const {
    return [this](const Position& a, const Position& b) { return before(candidates_, a, b); };
  }
  auto first_on_top() const {
    return [this](const Position& a, const Position& b) { return before(candidates_, b, a); };
  }

  // Before the node is evaluated: no less than its value will be, so that whatever has a place is
  // evaluated.
  Position first_child_at_most(std::int32_t node) const {
    const double drawn = limits_.drafts ? values_.most_of_first_child(candidates_, node) : 0.0;
    return {std::max(drawn, proposal(node).value),
            candidates_.depth[static_cast<std::size_t>(node)] + 1, node, 0};
  }

  struct Proposed {
    TokenId token = -1;
    double value = 0.0, chance = 0.0;
  };
  // Returns a node's next child, if it is the proposer's.
  Proposed proposal(std::int32_t node, TokenId but = -1) const {
    if (limits_.proposer == nullptr) return {};
    const auto found = limits_.proposer->next(candidates_, node, but);
    if (!found) return {};
    const double most = node == 0 ? 1.0 : candidates_.value[static_cast<std::size_t>(node)];
    return {found->token, std::min(most, values_.certain(node, found->chance)), found->chance};
  }
  // Replaces what would be drawn by what is proposed, if that is worth more. Looking ahead that is
  // known once the child is drawn.
  void prefer_proposal(Position& position, double at_most) const {
    position.proposed = -1;
    if (limits_.drafts && values_.looks_ahead()) return;
    const Proposed found = proposal(position.parent);
    const double value = std::min(found.value, at_most);
    if (value > position.value) propose(position, found, value);
  }
  static void propose(Position& position, const Proposed& found, double value) {
    position.proposed = found.token;
    position.value = value;
    position.chance = found.chance;
  }

  Position first_child(std::int32_t node, DraftSource& source) {
    const double share = expected_share(node, source);
    if (node == 0) values_.know_shares(share >= 0.0);
    Position first{limits_.drafts ? values_.first_child(candidates_, node, share) : 0.0,
                   candidates_.depth[static_cast<std::size_t>(node)] + 1, node, 0};
    if (node == 0 && limits_.drafts) first.value = values_.first_of_root(candidates_, share);
    prefer_proposal(first, 1.0);
    if (node == 0 && first.value > 0.0) first.value = 1.0;  // every tree has a node
    return first;
  }

  double expected_share(std::int32_t node, DraftSource& source) const {
    return values_.asks_for_shares() && limits_.drafts ? source.expected_share(node) : -1.0;
  }

  // Whether a node of this value pays for a tree's place, counted from 0.
  bool pays(double value, std::size_t place) const {
    const auto size = static_cast<std::int32_t>(place);
    return value > 0.0 && value >= limits_.min_value && size < limits_.max_size;
  }

  // Whether a position has a place. (If a node's child has, so has the node, which comes before.)
  bool admits(const Position& position) const {
    if (pays(position.value, placed_.size())) return true;
    return !is_last(position) && pays(position.value, 0);  // any place but the last one will do
  }

  bool is_last(const Position& position) const {
    return placed_.empty() || !before(candidates_, position, placed_.back());
  }
  std::size_t place_of(const Position& position) const {
    if (is_last(position)) return placed_.size();
    const auto place = std::upper_bound(placed_.begin(), placed_.end(), position, in_order());
    return static_cast<std::size_t>(place - placed_.begin());
  }

  // Draws positions under the nodes evaluated, best first, while they have a place.
  void draw(DraftSource& source) {
    dropped_.clear();
    next_.clear();
    for (const std::int32_t node : frontier_) next_.push_back(first_child(node, source));
    std::make_heap(next_.begin(), next_.end(), first_on_top());
    while (!next_.empty() && admits(next_.front())) {
      std::pop_heap(next_.begin(), next_.end(), first_on_top());
      Position position = next_.back();
      next_.pop_back();
      if (!add(position, source)) continue;
      const double before = position.value;
      position.node = -1;
      ++position.rank;
      position.value = 0.0;
      if (limits_.drafts) {
        const std::int32_t drawn = position.rank - values_.certain_children(position.parent);
        position.value = values_.next_sibling(candidates_, position.parent, drawn, before,
                                              expected_share(position.parent, source));
      }
      prefer_proposal(position, before);
      next_.push_back(position);
      std::push_heap(next_.begin(), next_.end(), first_on_top());
    }
  }

  // Draws the token of an admitted position. False: there is none, or it has lost its place, and
  // so have its siblings.
  bool add(Position& position, DraftSource& source) {
    std::optional<DrawnChild> drawn;
    if (position.proposed < 0) drawn = next_drawn(position, source);
    if (values_.looks_ahead() && position.proposed < 0) {
      const std::int32_t rank = position.rank - values_.certain_children(position.parent);
      const double value = drawn ? values_.child(position.parent, rank, *drawn) : 0.0;
      const Proposed found = proposal(position.parent, drawn ? drawn->token : -1);
      if (found.value > value) {
        propose(position, found, std::min(position.value, found.value));
        waiting_[static_cast<std::size_t>(position.parent)] = drawn;
      } else if (value < position.value) {
        position.value = value;
      }
      if (!admits(position)) return false;
    }
    if (position.proposed >= 0) {
      position.node = candidates_.add_certain(position.parent, position.proposed, position.rank,
                                              position.value, position.chance);
      source.exclude(position.parent, position.proposed);
      place(position);
      return true;
    }
    if (!drawn) return false;
    position.node = candidates_.add(position.parent, drawn->token, position.rank, drawn->prob,
                                    position.value, drawn->belief, drawn->uniform);
    place(position);
    return true;
  }

  // The draft's next child, perhaps one that a proposed one has come before.
  std::optional<DrawnChild> next_drawn(const Position& position, DraftSource& source) {
    if (limits_.proposer == nullptr)
      return source.child(candidates_, position.parent, position.rank);
    waiting_.resize(candidates_.token.size());
    auto& waiting = waiting_[static_cast<std::size_t>(position.parent)];
    if (waiting) return std::exchange(waiting, std::nullopt);
    return source.child(candidates_, position.parent, position.rank);
  }

  // Gives the last candidate its place; others may lose theirs.
  void place(const Position& position) {
    values_.added(candidates_);
    placed_.insert(placed_.begin() + static_cast<std::ptrdiff_t>(place_of(position)), position);
    while (!placed_.empty() && !pays(placed_.back().value, placed_.size() - 1)) {
      dropped_.push_back(placed_.back().node);
      placed_.pop_back();
    }
  }

  // The new nodes whose first child has a place.
  void choose_wanted(std::int32_t first_new) {
    frontier_.clear();
    for (std::int32_t node = first_new; node < candidates_.nodes(); ++node) {
      if (candidates_.depth[static_cast<std::size_t>(node)] >= limits_.max_depth) continue;
      if (admits(first_child_at_most(node))) frontier_.push_back(node);
    }
  }

  PositionValues values_;              // of the candidate tree's positions
  std::vector<Position> placed_;       // drawn positions that have a place, in order
  std::vector<Position> next_;         // heap: a round's undrawn positions, first on top
  std::vector<std::int32_t> dropped_;  // nodes that the last draws pushed out
  std::vector<std::int32_t> kept_;     // nodes of the finished tree
  std::vector<std::optional<DrawnChild>> waiting_;  // by node: drawn, and not yet in the tree
};

}  // namespace

std::unique_ptr<DraftPolicy> make_dyspec_policy(const DyspecRule& rule) {
  if (rule.economics != nullptr) {
    return std::make_unique<CostDrivenDyspec>("dyspec", rule, last_useful_rank);
  }
  return std::make_unique<DyspecPolicy>(rule);
}

}  // namespace coppice
