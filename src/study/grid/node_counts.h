// What the nodes of judged trees tell of a draft: how often tokens are accepted, by the draft's
// probability, by the target's, and by place in the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/sampling_params.h"
#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "engine/step_view.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// Bins of a probability, equally wide: bin b holds [b, b + 1) / bins, the last one 1 too.
inline constexpr std::size_t probability_bins = 20;
std::size_t probability_bin(double probability, std::size_t bins = probability_bins);

/// Bins that halve: bin b holds (2^-(b+1), 2^-b], the last one all below.
inline constexpr std::size_t octave_bins = 20;
std::size_t octave_bin(double probability);

/// Bins of a number that judges: few, for there is one in a step.
inline constexpr std::size_t number_bins = 8;

/// Deeper nodes and later siblings are counted with these. Depths begin at 1, ranks at 0.
inline constexpr std::int32_t deepest_counted = 32, last_rank_counted = 31;

/// Draft tokens that the judge examined: children of the root or of an accepted node, none of whose
/// earlier siblings was accepted.
struct Examined {
  std::int64_t examined = 0;
  std::int64_t accepted = 0;
  double draft_prob = 0.0;  ///< sum of D(token | path)
  /// Sum of D(token | path) / (1 - D of the earlier siblings): the chance of acceptance that DySpec
  /// (eq. 9 to 11) reckons with once a position is reached.
  double estimate = 0.0;

  Examined& operator+=(const Examined& other) {
    return *this = {examined + other.examined, accepted + other.accepted,
                    draft_prob + other.draft_prob, estimate + other.estimate};
  }
};

/// Steps and the tokens that they brought, the bonus token included.
struct StepCount {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;

  StepCount& operator+=(const StepCount& other) {
    return *this = {steps + other.steps, tokens + other.tokens};
  }
};

// In files a count is the list of its members.

template <typename Json>
void to_json(Json& json, const Examined& e) {
  json = Json::array({e.examined, e.accepted, e.draft_prob, e.estimate});
}
template <typename Json>
void from_json(const Json& json, Examined& e) {
  e = {json.at(0), json.at(1), json.at(2), json.at(3)};
}
template <typename Json>
void to_json(Json& json, const StepCount& count) {
  json = Json::array({count.steps, count.tokens});
}
template <typename Json>
void from_json(const Json& json, StepCount& count) {
  count = {json.at(0), json.at(1)};
}

/// What T is taken under where a step was judged by `target`.
SamplingParams counted_params(const SamplingParams& target);

/// By bin; those where nothing was counted are missing.
using Bins = std::map<std::size_t, Examined>;

struct NodeCounts {
  Bins by_draft_prob;  ///< linear bins of D
  Bins by_estimate;    ///< halving bins of the estimate
  std::map<std::pair<std::int32_t, std::int32_t>, Examined> by_position;  ///< (depth, rank)
  /// Drafted tokens, examined or not, by linear bins of D and of T(token | path). At target
  /// temperature 0, where T is all or nothing, T is taken at temperature 1 instead.
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> joint;
  /// Linear bins of the chance of acceptance that growth reckoned with, the sum of which is
  /// `estimate` here; empty where growth reckoned with none.
  Bins by_chance;
  /// Linear bins of the number that judged the root's first child, where growth was told of it.
  std::map<std::size_t, StepCount> by_number;

  COPPICE_MEMBERS(by_draft_prob, by_chance, by_number, by_estimate, by_position, joint)

  /// A judged tree, its accepted path, and T(token | path) of every node, [nodes]; `calibration`:
  /// by which it grew, or null.
  void add(const TokenTree& tree, std::span<const std::int32_t> path,
           std::span<const float> target_prob, const AcceptanceCalibration* calibration = nullptr);
  NodeCounts& operator+=(const NodeCounts& other);
  Examined total() const;
  /// Whether add() can have made it: bins and places that there are, no more accepted than
  /// examined.
  bool is_sound() const;
};

/// T(token | path) of every node, [nodes], 1 for the root: the logits of the step's pass, processed
/// by `params`. On a GPU a row of logits is downloaded for every node that has children.
std::vector<float> token_probs(const StepView& step, const SamplingParams& params);

}  // namespace coppice::study
