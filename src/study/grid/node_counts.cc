#include "study/grid/node_counts.h"

#include <algorithm>
#include <cmath>

#include "verify/children.h"

namespace coppice::study {
namespace {

/// `at` in [0, bins), the last bin also of what lies above.
std::size_t in_bins(double at, std::size_t bins) {
  return static_cast<std::size_t>(std::clamp(std::floor(at), 0.0, static_cast<double>(bins) - 1.0));
}

}  // namespace

std::size_t probability_bin(double probability, std::size_t bins) {
  return in_bins(probability * static_cast<double>(bins), bins);
}

std::size_t octave_bin(double probability) {
  return probability > 0.0 ? in_bins(-std::log2(probability), octave_bins) : octave_bins - 1;
}

SamplingParams counted_params(const SamplingParams& target) {
  if (target.temperature > 0.0) return target;
  return {1.0, 0, 1.0, 0.0, target.repetition_penalty};
}

void NodeCounts::add(const TokenTree& tree, std::span<const std::int32_t> path,
                     std::span<const float> target_prob, const AcceptanceCalibration* calibration) {
  if (tree.size() == 0) return;
  const auto judged_by = static_cast<double>(tree.uniform[1]);  // the root's first child
  if (judged_by >= 0.0) {
    by_number[probability_bin(judged_by, number_bins)] +=
        {1, static_cast<std::int64_t>(path.size()) + 1};
  }
  ChildLinks links;
  links.assign(tree);
  // The walk: the root, then the accepted path.
  std::vector<char> walked(static_cast<std::size_t>(tree.nodes()), 0);
  walked[0] = 1;
  for (const std::int32_t node : path) walked[node] = 1;
  for (std::int32_t parent = 0; parent < tree.nodes(); ++parent) {
    bool examined = walked[parent] != 0;
    double earlier = 0.0, believed = 0.0;  // D, and belief, of the siblings before
    for (std::int32_t child = links.first_child(parent); child >= 0;
         child = links.next_sibling(child)) {
      const auto c = static_cast<std::size_t>(child);
      const auto draft_prob = static_cast<double>(tree.draft_prob[c]);
      ++joint[{probability_bin(draft_prob), probability_bin(static_cast<double>(target_prob[c]))}];
      if (!examined) continue;
      const bool accepted = walked[c] != 0;
      const double left = 1.0 - earlier;
      const Examined one = {1, accepted ? 1 : 0, draft_prob,
                            left > draft_prob ? draft_prob / left : 1.0};
      by_draft_prob[probability_bin(draft_prob)] += one;
      by_estimate[octave_bin(one.estimate)] += one;
      by_position[{std::min(tree.depth[c], deepest_counted),
                   std::min(tree.rank[c], last_rank_counted)}] += one;
      if (calibration != nullptr) {
        const auto belief = static_cast<double>(tree.belief[c]);
        const double share = belief < 1.0 - believed ? belief / (1.0 - believed) : 1.0;
        Examined reckoned = one;
        reckoned.estimate =
            calibration->child(tree.rank[c], share, static_cast<double>(tree.uniform[c]));
        by_chance[probability_bin(reckoned.estimate)] += reckoned;
        believed += belief;
      }
      earlier += draft_prob;
      examined = !accepted;  // what follows an accepted sibling is never looked at
    }
  }
}

NodeCounts& NodeCounts::operator+=(const NodeCounts& other) {
  const auto add_all = [](auto& sums, const auto& more) {
    for (const auto& [key, count] : more) sums[key] += count;
  };
  add_all(by_draft_prob, other.by_draft_prob);
  add_all(by_estimate, other.by_estimate);
  add_all(by_position, other.by_position);
  add_all(joint, other.joint);
  add_all(by_chance, other.by_chance);
  add_all(by_number, other.by_number);
  return *this;
}

Examined NodeCounts::total() const {
  Examined sum;
  for (const auto& [bin, examined] : by_draft_prob) sum += examined;
  return sum;
}

bool NodeCounts::is_sound() const {
  const auto is_count = [](const Examined& e) {
    return 0 <= e.accepted && e.accepted <= e.examined && e.draft_prob >= 0.0 && e.estimate >= 0.0;
  };
  const auto are_bins = [&](const Bins& bins, std::size_t most) {
    return std::ranges::all_of(
        bins, [&](const auto& one) { return one.first < most && is_count(one.second); });
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
  const auto is_joint = [](const auto& one) {
    return one.first.first < probability_bins && one.first.second < probability_bins &&
           one.second >= 0;
  };
  return are_bins(by_draft_prob, probability_bins) && are_bins(by_chance, probability_bins) &&
         are_bins(by_estimate, octave_bins) && std::ranges::all_of(by_number, is_step_count) &&
         std::ranges::all_of(by_position, is_place) && std::ranges::all_of(joint, is_joint);
}

std::vector<float> token_probs(const StepView& step, const SamplingParams& params) {
  const TokenTree& tree = step.tree;
  std::vector<float> probs(static_cast<std::size_t>(tree.nodes()), 1.0f);
  ChildLinks links;
  links.assign(tree);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    std::int32_t child = links.first_child(node);
    if (child < 0) continue;
    const std::span<const float> row = step.target.distribution_at(node, params);
    for (; child >= 0; child = links.next_sibling(child)) {
      probs[child] = row[tree.token[child]];
    }
  }
  return probs;
}

}  // namespace coppice::study
