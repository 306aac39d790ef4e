#include <algorithm>
#include <cstddef>
#include <vector>

#include "drafting/policy.h"
#include "drafting/position_values.h"
#include "drafting/positions.h"

namespace coppice {
namespace {

// DySpec's Algorithm 1 draws the position of the highest value, max_size times, and calls the
// draft for every new node. The same tree is grown here in one call per depth, for DySpec's values
// and for any others that drafting/position_values.h gives.
//
// Let F be the first max_size positions, in the order of drafting/positions.h, of all positions
// that exist (whose parent's D has mass left for them) and that the fixed limits admit.
// Algorithm 1 pops positions in exactly that order, because a position's children and next
// sibling come after it; so its tree is F. Here, positions are drawn while they come before the
// cut, the max_size-th of those drawn; drawing more only moves the cut forward, so what falls
// behind it is not in F, and neither are its children and later siblings. A node whose first
// child would already stand behind the cut need not be evaluated. A node that is not evaluated
// at its first chance never will be, hence round r evaluates nodes of depth r - 1 only.
//
// Some tokens are drawn and then dropped. This does not bias what the tree's tokens are: whether
// a position x is in F is decided by the positions before x, whose tokens determine which of
// them exist and what they are worth; x's own value and existence follow from its ancestors,
// their earlier siblings and its own, which are among them. Given all of these, x's token is
// still distributed as D without its earlier siblings' tokens, whether or not x is in F:
// membership never looks at the token itself. Positions outside F are seen by nobody. (A rule
// that looks at a token it may drop, say one that picks the best size from the finished list,
// lacks this property.)
//
// Looking ahead, where any tree is exact, lowers a position's value to its drawn child's estimate.
// F is then the first max_size nodes by these values, and is found in the same way: a value before
// the draw bounds the one after it, and both those of later siblings and of descendants.
class DyspecPolicy final : public DraftPolicy {
  // A drawn position that has a place. Its value stands here too, which settles nearly all
  // comparisons.
  struct Placed {
    double value;
    std::int32_t node;
  };

  // Heap order: the first position on top.
  auto first_on_top() const {
    return [this](const Position& a, const Position& b) { return before(arena_, b, a); };
  }
  auto in_order() const {
    return [this](const Placed& a, const Placed& b) {
      if (a.value != b.value) return a.value > b.value;
      return before(arena_, position_of(arena_, a.node), position_of(arena_, b.node));
    };
  }

 public:
  explicit DyspecPolicy(const PositionValues& values) : values_(values) {}
  std::string name() const override { return "dyspec"; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    arena_.reset(tree.token[0]);
    tree.reset(arena_.token[0]);
    best_.clear();
    drawn_.clear();
    cut_ = {0.0, 0};
    values_.reset();
    if (limits.max_size <= 0 || limits.max_depth <= 0) return;
    batch_.assign(1, 0);
    while (!batch_.empty()) {
      source.evaluate(arena_, batch_);
      next_.clear();
      for (const std::int32_t node : batch_) {
        const Position position = first_child(node);
        if (admits(position, limits)) next_.push_back(position);
      }
      std::make_heap(next_.begin(), next_.end(), first_on_top());
      const std::int32_t first_new = arena_.nodes();
      draw(source, limits);
      source.forget(dropped_);  // so that never more than max_size nodes hold draft KV
      batch_.clear();
      for (std::int32_t node = first_new; node < arena_.nodes(); ++node) {
        if (arena_.depth[static_cast<std::size_t>(node)] < limits.max_depth &&
            admits(first_child(node), limits)) {
          batch_.push_back(node);
        }
      }
    }
    finish(tree);
  }

 private:
  // The position under `node` that is drawn first. Rounding must not lift it above its parent's.
  Position first_child(std::int32_t node) const {
    const auto i = static_cast<std::size_t>(node);
    return {values_.first_child(arena_, node), arena_.depth[i] + 1, node, 0};
  }

  bool full(const GrowthLimits& limits) const {
    return best_.size() + drawn_.size() >= static_cast<std::size_t>(limits.max_size);
  }

  // The list that ends with the last of all places; one has a place at least.
  std::vector<Placed>& last_list() {
    if (best_.empty() || drawn_.empty()) return best_.empty() ? drawn_ : best_;
    return in_order()(best_.back(), drawn_.back()) ? drawn_ : best_;
  }

  // Whether a position has a place among the first max_size. (If a node's child has, so has the
  // node, which comes before it.)
  bool admits(const Position& position, const GrowthLimits& limits) const {
    if (!(position.value > 0.0) || position.value < limits.min_value) return false;
    if (position.value != cut_.value) return position.value > cut_.value;
    return before(arena_, position, position_of(arena_, cut_.node));
  }

  // Draws positions, best first, while they have a place.
  void draw(DraftSource& source, const GrowthLimits& limits) {
    dropped_.clear();
    while (!next_.empty() && admits(next_.front(), limits)) {
      Position position = next_.front();
      if (add(position, source, limits)) {
        ++position.rank;
        position.value =
            values_.next_sibling(arena_, position.parent, position.rank, position.value);
        if (admits(position, limits)) {
          replace_first(position);
          continue;
        }
      }
      std::pop_heap(next_.begin(), next_.end(), first_on_top());
      next_.pop_back();
    }
    keep_drawn();  // what is left has no place now, and never will
  }

  // Puts a position in the place of the first one, and the first of all on top again. Siblings
  // are often next in order, so that one or two comparisons do.
  void replace_first(const Position& position) {
    std::size_t hole = 0;
    for (std::size_t child = 1; child < next_.size(); child = 2 * hole + 1) {
      if (child + 1 < next_.size() && before(arena_, next_[child + 1], next_[child])) ++child;
      if (before(arena_, position, next_[child])) break;
      next_[hole] = next_[child];
      hole = child;
    }
    next_[hole] = position;
  }

  // Draws the token of an admitted position. False: there is none, or it has lost its place, and
  // so have its siblings.
  bool add(Position& position, DraftSource& source, const GrowthLimits& limits) {
    const auto drawn = source.child(arena_, position.parent, position.rank);
    if (!drawn) return false;
    if (values_.looks_ahead()) {
      position.value = std::min(position.value,
                                values_.child(arena_, position.parent, position.rank, drawn->prob));
      if (!admits(position, limits)) return false;
    }
    const std::int32_t node =
        arena_.add(position.parent, drawn->token, position.rank, drawn->prob, position.value);
    values_.added(arena_);
    if (full(limits)) {
      std::vector<Placed>& last = last_list();
      dropped_.push_back(last.back().node);
      last.pop_back();
    }
    // Positions come in order, except where looking ahead has lowered their values.
    const Placed placed{position.value, node};
    drawn_.insert(values_.looks_ahead()
                      ? std::upper_bound(drawn_.begin(), drawn_.end(), placed, in_order())
                      : drawn_.end(),
                  placed);
    if (full(limits)) cut_ = last_list().back();
    return true;
  }

  // Merges this round's positions into all, from the back: most of them stand there.
  void keep_drawn() {
    std::size_t old = best_.size();
    best_.resize(old + drawn_.size());
    for (std::size_t from = drawn_.size(); from > 0; --from) {
      const Placed placed = drawn_[from - 1];
      for (; old > 0 && best_[old - 1].value < placed.value; --old) {
        best_[old - 1 + from] = best_[old - 1];
      }
      for (; old > 0 && in_order()(placed, best_[old - 1]); --old) {  // ties
        best_[old - 1 + from] = best_[old - 1];
      }
      best_[old - 1 + from] = placed;
    }
    drawn_.clear();
  }

  void finish(TokenTree& tree) {
    index_.assign(static_cast<std::size_t>(arena_.nodes()), 0);
    for (const Placed& placed : best_) {
      const auto i = static_cast<std::size_t>(placed.node);
      const std::int32_t parent = index_[static_cast<std::size_t>(arena_.parent[i])];
      index_[i] =
          tree.add(parent, arena_.token[i], arena_.rank[i], arena_.draft_prob[i], arena_.value[i]);
      tree.source.back() = placed.node;
    }
  }

  TokenTree arena_;                    // every drawn position
  PositionValues values_;              // of its positions
  std::vector<Placed> best_;           // the first max_size positions, in order
  std::vector<Placed> drawn_;          // those of this round, which are not in best_ yet, in order
  Placed cut_{0.0, 0};                 // the last of max_size positions; below all values before
  std::vector<Position> next_;         // heap: undrawn positions, first on top
  std::vector<std::int32_t> batch_;    // nodes of one draft pass
  std::vector<std::int32_t> dropped_;  // nodes that the last draws pushed out
  std::vector<std::int32_t> index_;    // tree node by arena node
};

}  // namespace

std::unique_ptr<DraftPolicy> make_dyspec_policy() {
  return std::make_unique<DyspecPolicy>(PositionValues(nullptr, false));
}

std::unique_ptr<DraftPolicy> make_calibrated_dyspec_policy(const AcceptanceCalibration& calibration,
                                                           ChildDraw draw) {
  return std::make_unique<DyspecPolicy>(PositionValues(&calibration, draw != ChildDraw::sampled));
}

}  // namespace coppice
