#include "study/grid/node_counts.h"

#include <algorithm>
#include <cmath>

#include "base/judged_children.h"
#include "study/observed.h"

namespace coppice::study {

std::size_t probability_bin(double probability, std::size_t bins) {
  const double last = static_cast<double>(bins) - 1.0;
  return static_cast<std::size_t>(
      std::clamp(std::floor(probability * static_cast<double>(bins)), 0.0, last));
}

void NodeCounts::add(const TokenTree& tree, std::span<const std::int32_t> path, bool ends,
                     const AcceptanceCalibration* calibration) {
  if (tree.size() == 0) return;
  const auto judged_by = static_cast<double>(tree.uniform[1]);  // the root's first child
  if (judged_by >= 0.0) {
    by_number[probability_bin(judged_by, number_bins)] +=
        {1, static_cast<std::int64_t>(path.size()) + (ends ? 0 : 1)};
  }
  std::int32_t parent = -1, certain = 0;
  double believed = 0.0;  // of the drawn siblings before
  for_each_judged(tree, path, ends, [&](std::int32_t child, bool accepted) {
    const Examined one = {1, accepted ? 1 : 0, static_cast<double>(tree.draft_prob[child])};
    by_position[{std::min(tree.depth[child], deepest_counted),
                 std::min(tree.rank[child], last_rank_counted)}] += one;
    if (parent != tree.parent[child]) {
      believed = 0.0;
      certain = 0;
    }
    parent = tree.parent[child];
    if (tree.is_certain(child)) {
      looked_up += {1, one.accepted, static_cast<double>(tree.belief[child])};
      ++certain;
      return;
    }
    by_draft_prob[probability_bin(one.estimate)] += one;
    if (calibration == nullptr) return;
    const auto belief = static_cast<double>(tree.belief[child]);
    const double share = belief < 1.0 - believed ? belief / (1.0 - believed) : 1.0;
    Examined reckoned = one;
    reckoned.estimate = calibration->child(tree.rank[child] - certain, share,
                                           static_cast<double>(tree.uniform[child]));
    by_chance[probability_bin(reckoned.estimate)] += reckoned;
    believed += belief;
  });
}

NodeCounts& NodeCounts::operator+=(const NodeCounts& other) {
  const auto add_all = [](auto& sums, const auto& more) {
    for (const auto& [key, count] : more) sums[key] += count;
  };
  add_all(by_draft_prob, other.by_draft_prob);
  looked_up += other.looked_up;
  add_all(by_position, other.by_position);
  add_all(by_chance, other.by_chance);
  add_all(by_number, other.by_number);
  return *this;
}

Examined NodeCounts::total() const {
  Examined sum = looked_up;
  for (const auto& [bin, examined] : by_draft_prob) sum += examined;
  return sum;
}

bool NodeCounts::is_sound() const {
  const auto is_count = [](const Examined& e) {
    return 0 <= e.accepted && e.accepted <= e.examined && e.estimate >= 0.0;
  };
  const auto is_bin = [&](const auto& one) {
    return one.first < probability_bins && is_count(one.second);
  };
  const auto is_step_count = [](const auto& one) {
    return one.first < number_bins && 0 <= one.second.steps &&
           one.second.steps <= one.second.tokens;
  };
  const auto is_place = [&](const auto& one) {
    const auto& [depth, rank] = one.first;
    return depth >= 1 && depth <= deepest_counted && rank >= 0 && rank <= last_rank_counted &&
           is_count(one.second);
  };
  return is_count(looked_up) && std::ranges::all_of(by_draft_prob, is_bin) &&
         std::ranges::all_of(by_chance, is_bin) && std::ranges::all_of(by_number, is_step_count) &&
         std::ranges::all_of(by_position, is_place);
}

}  // namespace coppice::study
