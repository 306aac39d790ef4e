#include <algorithm>
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
 public:
  explicit DyspecPolicy(const PositionValues& values) : values_(values) {}
  std::string name() const override { return "dyspec"; }

  std::int32_t arena_nodes(const GrowthLimits& limits) const override {
    // Round r draws at most max_size - r + 1 positions: those before the cut, while the r - 1
    // ancestors of its deepest ones keep their places. Looking ahead, values come out of order and
    // a new node may lose its place again: at most one of each family, whose next sibling would
    // else have been the first of all positions left.
    const std::int64_t size = std::max(limits.max_size, 0);
    const std::int64_t rounds = std::min<std::int64_t>(std::max(limits.max_depth, 0), size);
    const std::int64_t drawn = rounds * size - rounds * (rounds - 1) / 2;
    const std::int64_t nodes = 1 + (values_.looks_ahead() ? 2 : 1) * drawn;
    return static_cast<std::int32_t>(std::min<std::int64_t>(nodes, INT32_MAX));
  }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    arena_.reset(tree.token[0]);
    tree.reset(arena_.token[0]);
    best_.clear();
    next_.clear();
    values_.reset();
    if (limits.max_size <= 0 || limits.max_depth <= 0) return;
    batch_.assign(1, 0);
    while (!batch_.empty()) {
      source.evaluate(arena_, batch_);
      for (const std::int32_t node : batch_) offer(first_child(node), limits);
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
  // Heap orders: the first position, or the last, on top.
  auto first_on_top() const {
    return [this](const Position& a, const Position& b) { return before(arena_, b, a); };
  }
  auto last_on_top() const {
    return [this](std::int32_t a, std::int32_t b) {
      return before(arena_, position_of(arena_, a), position_of(arena_, b));
    };
  }

  // The position under `node` that is drawn first. Rounding must not lift it above its parent's.
  Position first_child(std::int32_t node) const {
    const auto i = static_cast<std::size_t>(node);
    return {values_.first_child(arena_, node), arena_.depth[i] + 1, node, 0};
  }

  // Whether a position has a place among the first max_size. (If a node's child has, so has the
  // node, which comes before it.)
  bool admits(const Position& position, const GrowthLimits& limits) const {
    if (!(position.value > 0.0) || position.value < limits.min_value) return false;
    return best_.size() < static_cast<std::size_t>(limits.max_size) ||
           before(arena_, position, position_of(arena_, best_.front()));
  }

  void offer(const Position& position, const GrowthLimits& limits) {
    if (!admits(position, limits)) return;
    next_.push_back(position);
    std::push_heap(next_.begin(), next_.end(), first_on_top());
  }

  // Draws positions, best first, while they have a place.
  void draw(DraftSource& source, const GrowthLimits& limits) {
    dropped_.clear();
    while (!next_.empty() && admits(next_.front(), limits)) {
      std::pop_heap(next_.begin(), next_.end(), first_on_top());
      Position position = next_.back();
      next_.pop_back();
      const auto drawn = source.child(arena_, position.parent, position.rank);
      if (!drawn) continue;
      if (values_.looks_ahead()) {
        position.value = std::min(
            position.value, values_.child(arena_, position.parent, position.rank, drawn->prob));
        if (!admits(position, limits)) continue;
      }
      const std::int32_t node =
          arena_.add(position.parent, drawn->token, position.rank, drawn->prob, position.value);
      values_.added(arena_);
      if (best_.size() == static_cast<std::size_t>(limits.max_size)) {
        std::pop_heap(best_.begin(), best_.end(), last_on_top());
        dropped_.push_back(best_.back());
        best_.pop_back();
      }
      best_.push_back(node);
      std::push_heap(best_.begin(), best_.end(), last_on_top());
      ++position.rank;
      position.value = values_.next_sibling(arena_, position.parent, position.rank, position.value);
      offer(position, limits);
    }
    next_.clear();  // what has no place now never will
  }

  void finish(TokenTree& tree) {
    std::sort_heap(best_.begin(), best_.end(), last_on_top());
    index_.assign(static_cast<std::size_t>(arena_.nodes()), 0);
    for (const std::int32_t node : best_) {
      const auto i = static_cast<std::size_t>(node);
      const std::int32_t parent = index_[static_cast<std::size_t>(arena_.parent[i])];
      index_[i] =
          tree.add(parent, arena_.token[i], arena_.rank[i], arena_.draft_prob[i], arena_.value[i]);
      tree.source.back() = node;
    }
  }

  TokenTree arena_;                    // every drawn position
  PositionValues values_;              // of its positions
  std::vector<std::int32_t> best_;     // heap: the first max_size positions, last on top
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
