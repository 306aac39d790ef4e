#include "study/grid/node_counts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/error.h"
#include "verify/children.h"

namespace coppice::study {
namespace {

nlohmann::json json_of(const Examined& e) {
  return nlohmann::json::array({e.examined, e.accepted, e.draft_prob, e.estimate});
}

[[noreturn]] void refuse(const char* what) { throw_failure(cat(what, " are out of range")); }

Examined examined_from(const nlohmann::json& list, std::size_t first) {
  Examined e;
  e.examined = list.at(first).get<std::int64_t>();
  e.accepted = list.at(first + 1).get<std::int64_t>();
  e.draft_prob = list.at(first + 2).get<double>();
  e.estimate = list.at(first + 3).get<double>();
  const auto most = static_cast<double>(e.examined) * (1.0 + 1e-6);
  const bool sound = e.examined > 0 && e.accepted >= 0 && e.accepted <= e.examined &&
                     e.draft_prob >= 0.0 && e.draft_prob <= most && e.estimate >= 0.0 &&
                     e.estimate <= most && list.size() == first + 4;
  if (!sound) refuse("counts of examined tokens");
  return e;
}

template <std::size_t n>
nlohmann::json json_of(const std::array<Examined, n>& bins) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t b = 0; b < n; ++b) {
    if (bins[b].examined == 0) continue;
    nlohmann::json entry = json_of(bins[b]);
    entry.insert(entry.begin(), b);
    list.push_back(std::move(entry));
  }
  return list;
}

template <std::size_t n>
void read_bins(const nlohmann::json& list, std::array<Examined, n>& bins) {
  for (const nlohmann::json& entry : list) {
    const auto bin = entry.at(0).get<std::size_t>();
    if (bin >= n) refuse("bins");
    bins[bin] += examined_from(entry, 1);
  }
}

std::size_t number_bin(float number) {
  return std::min(static_cast<std::size_t>(number * static_cast<float>(number_bins)),
                  number_bins - 1);
}

}  // namespace

std::size_t probability_bin(double probability) {
  const double scaled = std::floor(probability * static_cast<double>(probability_bins));
  return static_cast<std::size_t>(
      std::clamp(scaled, 0.0, static_cast<double>(probability_bins - 1)));
}

std::size_t octave_bin(double probability) {
  if (!(probability > 0.0)) return octave_bins - 1;
  const double octave = std::floor(-std::log2(probability));
  return static_cast<std::size_t>(std::clamp(octave, 0.0, static_cast<double>(octave_bins - 1)));
}

Examined& Examined::operator+=(const Examined& other) {
  examined += other.examined;
  accepted += other.accepted;
  draft_prob += other.draft_prob;
  estimate += other.estimate;
  return *this;
}

StepCount& StepCount::operator+=(const StepCount& other) {
  steps += other.steps;
  tokens += other.tokens;
  return *this;
}

SamplingParams counted_params(const SamplingParams& target) {
  if (target.temperature > 0.0) return target;
  return {1.0, 0, 1.0, 0.0, target.repetition_penalty};
}

void NodeCounts::add(const TokenTree& tree, std::span<const std::int32_t> path,
                     std::span<const float> target_prob, const AcceptanceCalibration* calibration) {
  if (tree.size() == 0) return;
  if (tree.uniform[1] >= 0.0f) {  // node 1 is the root's first child
    by_number[number_bin(tree.uniform[1])] += {1, static_cast<std::int64_t>(path.size()) + 1};
  }
  ChildLinks links;
  links.assign(tree);
  // The walk: the root, then the accepted path.
  std::vector<char> walked(static_cast<std::size_t>(tree.nodes()), 0);
  walked[0] = 1;
  for (const std::int32_t node : path) walked[node] = 1;
  for (std::int32_t parent = 0; parent < tree.nodes(); ++parent) {
    if (links.first_child(parent) < 0) continue;
    bool examined = walked[parent] != 0;
    double earlier = 0.0, believed = 0.0;  // D, and belief, of the siblings before
    for (std::int32_t child = links.first_child(parent); child >= 0;
         child = links.next_sibling(child)) {
      const auto c = static_cast<std::size_t>(child);
      const auto draft_prob = static_cast<double>(tree.draft_prob[c]);
      ++joint[probability_bin(draft_prob)][probability_bin(static_cast<double>(target_prob[c]))];
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
  const auto add_bins = [](auto& bins, const auto& others) {
    for (std::size_t b = 0; b < bins.size(); ++b) bins[b] += others[b];
  };
  add_bins(by_draft_prob, other.by_draft_prob);
  add_bins(by_estimate, other.by_estimate);
  add_bins(by_chance, other.by_chance);
  add_bins(by_number, other.by_number);
  for (std::size_t b = 0; b < probability_bins; ++b) add_bins(joint[b], other.joint[b]);
  for (const auto& [position, counts] : other.by_position) by_position[position] += counts;
  return *this;
}

Examined NodeCounts::total() const {
  Examined sum;
  for (const Examined& bin : by_draft_prob) sum += bin;
  return sum;
}

nlohmann::json to_json(const NodeCounts& counts) {
  nlohmann::json positions = nlohmann::json::array();
  for (const auto& [position, examined] : counts.by_position) {
    nlohmann::json entry = json_of(examined);
    entry.insert(entry.begin(), position.second);
    entry.insert(entry.begin(), position.first);
    positions.push_back(std::move(entry));
  }
  nlohmann::json joint = nlohmann::json::array();
  for (std::size_t d = 0; d < probability_bins; ++d) {
    for (std::size_t t = 0; t < probability_bins; ++t) {
      if (counts.joint[d][t] > 0)
        joint.push_back(nlohmann::json::array({d, t, counts.joint[d][t]}));
    }
  }
  nlohmann::json numbers = nlohmann::json::array();
  for (std::size_t b = 0; b < number_bins; ++b) {
    const StepCount& one = counts.by_number[b];
    if (one.steps > 0) numbers.push_back(nlohmann::json::array({b, one.steps, one.tokens}));
  }
  return {{"by_draft_prob", json_of(counts.by_draft_prob)},
          {"by_chance", json_of(counts.by_chance)},
          {"by_number", std::move(numbers)},
          {"by_estimate", json_of(counts.by_estimate)},
          {"by_position", std::move(positions)},
          {"joint", std::move(joint)}};
}

NodeCounts node_counts_from(const nlohmann::json& json) {
  NodeCounts counts;
  read_bins(json.at("by_draft_prob"), counts.by_draft_prob);
  read_bins(json.at("by_estimate"), counts.by_estimate);
  // Results of earlier versions lack these two.
  if (json.contains("by_chance")) read_bins(json.at("by_chance"), counts.by_chance);
  for (const nlohmann::json& entry : json.value("by_number", nlohmann::json::array())) {
    const auto bin = entry.at(0).get<std::size_t>();
    const auto steps = entry.at(1).get<std::int64_t>(), tokens = entry.at(2).get<std::int64_t>();
    if (bin >= number_bins || steps < 0 || tokens < steps) refuse("bins");
    counts.by_number[bin] = {steps, tokens};
  }
  for (const nlohmann::json& entry : json.at("by_position")) {
    const auto depth = entry.at(0).get<std::int32_t>(), rank = entry.at(1).get<std::int32_t>();
    if (depth < 1 || depth > deepest_counted || rank < 0 || rank > last_rank_counted) {
      refuse("depth and rank");
    }
    counts.by_position[{depth, rank}] += examined_from(entry, 2);
  }
  for (const nlohmann::json& entry : json.at("joint")) {
    const auto d = entry.at(0).get<std::size_t>(), t = entry.at(1).get<std::size_t>();
    const auto count = entry.at(2).get<std::int64_t>();
    if (d >= probability_bins || t >= probability_bins || count < 0) refuse("bins");
    counts.joint[d][t] += count;
  }
  return counts;
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
      const auto c = static_cast<std::size_t>(child);
      probs[c] = row[tree.token[c]];
    }
  }
  return probs;
}

}  // namespace coppice::study
