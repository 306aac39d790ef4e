#include <algorithm>
#include <limits>
#include <span>

#include "kernels/rejection_rule.h"
#include "study/replay/sources.h"

namespace coppice::study {
namespace {

struct Interval {
  double low, high;
};

// What a node's records say of T and D, for the residual of recursive rejection.
class RecordedResidual {
 public:
  RecordedResidual(const RecordedPosition& position, std::int32_t node) {
    const std::size_t first = position.first_entry[node];
    const auto count = static_cast<std::size_t>(position.entries(node));
    target_ = std::span(position.target).subspan(first, count);
    draft_ = std::span(position.draft).subspan(first, count);
    draft_rest_ = static_cast<double>(position.draft_rest[node]);
    target_rest_ = static_cast<double>(position.target_rest[node]);
    excess_ = std::max(0.0, target_rest_ - static_cast<double>(position.overlap[node]));
  }

  std::size_t entries() const { return draft_.size(); }
  double draft(std::size_t entry) const { return static_cast<double>(draft_[entry]); }
  double target(std::size_t entry) const { return static_cast<double>(target_[entry]); }
  /// Mass of max(T - c D, 0) for c in an interval from 1 on.
  Interval mass(const Interval& c) const {
    const double least_rest =
        c.high <= 1.0 ? excess_ : std::clamp(target_rest_ - c.high * draft_rest_, 0.0, excess_);
    Interval mass{least_rest, excess_};
    for (std::size_t e = 0; e < entries(); ++e) {
      mass.low += std::max(0.0, target(e) - c.high * draft(e));
      mass.high += std::max(0.0, target(e) - c.low * draft(e));
    }
    return mass;
  }

 private:
  std::span<const float> target_, draft_;
  double draft_rest_ = 0.0, target_rest_ = 0.0, excess_ = 0.0;
};

double ratio(double part, double whole) {
  return whole > 0.0 ? part / whole : std::numeric_limits<double>::infinity();
}

}  // namespace

// Places below `node` in a tree that holds its ancestors and all of their earlier siblings.
std::int32_t BoundsFinder::room_below(const TokenTree& tree, const GrowthLimits& limits,
                                      const GrowthKind& kind, std::int32_t node) const {
  std::int32_t places = limits.max_size;
  for (std::int32_t n = node; n > 0; n = tree.parent[n]) {
    places -= tree.rank[n] + 1;
  }
  const std::int32_t levels = std::min(limits.max_depth, kind.depth) - tree.depth[node];
  return std::max(0, std::min(places, levels));
}

void BoundsFinder::begin(const TokenTree& tree, const GrowthLimits& limits, const GrowthKind& kind,
                         const RecordedDraft& draft) {
  extra_.assign(static_cast<std::size_t>(tree.nodes()), 0);
  largest_missing_ = 0.0;
  grew_short_ = false;
  if (draft.shortfalls().empty()) return;
  std::int32_t arena_nodes = 0;
  for (const std::int32_t source : tree.source) arena_nodes = std::max(arena_nodes, source + 1);
  tree_node_.assign(static_cast<std::size_t>(arena_nodes), -1);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    tree_node_[tree.source[node]] = node;
  }
  const bool full = tree.size() >= limits.max_size;
  const double cut = full ? *std::ranges::min_element(tree.value) : 0.0;
  for (const Shortfall& shortfall : draft.shortfalls()) {
    // A node that lost its place would have lost all below it.
    if (shortfall.node >= arena_nodes) continue;
    const std::int32_t node = tree_node_[shortfall.node];
    if (node < 0) continue;
    if (kind.displacement == Displacement::by_value && shortfall.value < cut) continue;
    const std::int32_t room = room_below(tree, limits, kind, node);
    if (room == 0) continue;
    grew_short_ = true;
    extra_[node] = room;
    largest_missing_ = std::max(largest_missing_, shortfall.value);
  }
}

bool BoundsFinder::in_doubt(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                            std::int32_t accepted, const RecordedDraft& draft,
                            const RecordedTarget& target, const StepKey& key) const {
  // The first two children are judged exactly.
  if (accepted >= 0 && tree.rank[accepted] < 2) return false;
  const RecordedPlace at = target.place(node);
  if (!at.recorded()) return false;  // it has no children
  const RecordedResidual records(draft.position(at), at.node);
  Interval c{0.0, 0.0}, mass{1.0, 1.0};
  double drawn = 0.0;
  std::uint64_t rank = 0;
  for (std::int32_t child = node + 1; child < tree.nodes(); ++child) {
    if (tree.parent[child] != node) continue;
    if (rank > 0) {
      mass = records.mass(c);
      if (mass.high <= NodeRejection::no_mass) return false;
    }
    const double draft_prob = static_cast<double>(tree.draft_prob[child]);
    const double left = std::max(1.0 - drawn, draft_prob);
    if (rank >= 2) {
      const double target_prob = records.target(static_cast<std::size_t>(tree.token[child]));
      const double scale = left / draft_prob;
      const Interval chance{
          ratio(scale * std::max(0.0, target_prob - c.high * draft_prob), mass.high),
          ratio(scale * std::max(0.0, target_prob - c.low * draft_prob), mass.low)};
      const double u = uniform(RandomStream::accept, key, node_key, rank);
      if (u >= chance.low && u < chance.high) return true;
    }
    if (child == accepted) return false;
    c = {c.low + mass.low / left, c.high + mass.high / left};
    drawn += draft_prob;
    ++rank;
  }
  return false;
}

StepBounds BoundsFinder::find(const TokenTree& tree, const GrowthKind& kind, const Verdict& verdict,
                              const RecordedDraft& draft, const RecordedTarget& target,
                              bool rejection, const StepKey& key) const {
  StepBounds bounds;
  // Along the walk: what could not be displaced, up to the first doubt.
  const auto stays = [&](std::int32_t node) {
    return !grew_short_ || kind.displacement == Displacement::none ||
           tree.value[node] > largest_missing_;
  };
  std::int32_t node = 0;
  std::uint64_t node_key = root_node_key;
  bool kept = true;
  for (std::size_t i = 0;; ++i) {
    const std::int32_t next = i < verdict.path.size() ? verdict.path[i] : -1;
    if (rejection && in_doubt(tree, node, node_key, next, draft, target, key)) {
      bounds.doubtful = true;
      break;
    }
    if (next < 0) break;
    kept = kept && stays(next);
    if (kept) bounds.lowest = static_cast<std::int32_t>(i) + 2;
    node = next;
    node_key = child_node_key(node_key, tree.rank[node]);
  }
  const auto reach = [&](std::int32_t n) { return 1 + tree.depth[n] + extra_[n]; };
  bounds.highest = reach(node);
  bounds.ended_short = extra_[node] > 0;
  if (!bounds.doubtful) return bounds;
  std::vector<char> below(static_cast<std::size_t>(tree.nodes()), 0);
  below[node] = 1;
  for (std::int32_t n = node + 1; n < tree.nodes(); ++n) {
    below[n] = below[tree.parent[n]];
    if (below[n] != 0) bounds.highest = std::max(bounds.highest, reach(n));
  }
  return bounds;
}

}  // namespace coppice::study
