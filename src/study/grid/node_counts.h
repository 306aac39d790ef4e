// What the nodes of judged trees tell of a draft: how often tokens are accepted, by the draft's
// probability, by what growth reckoned with, and by place in the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// Bins of a probability, equally wide: bin b holds [b, b + 1) / bins, the last one 1 too.
inline constexpr std::size_t probability_bins = 20;
std::size_t probability_bin(double probability, std::size_t bins = probability_bins);

/// Bins of a number that judges: few, for there is one in a step.
inline constexpr std::size_t number_bins = 8;

/// Deeper nodes and later siblings are counted with these. Depths begin at 1, ranks at 0.
inline constexpr std::int32_t deepest_counted = 32, last_rank_counted = 31;

/// Draft tokens that the judge examined (for_each_judged()).
struct Examined {
  std::int64_t examined = 0;
  std::int64_t accepted = 0;
  double estimate = 0.0;  ///< sum of the probabilities that tell the bins apart; else of D

  Examined& operator+=(const Examined& other) {
    return *this = {examined + other.examined, accepted + other.accepted,
                    estimate + other.estimate};
  }
};

/// Steps and the tokens of them that were kept (StepView::kept).
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
  json = Json::array({e.examined, e.accepted, e.estimate});
}
template <typename Json>
void from_json(const Json& json, Examined& e) {
  e = {json.at(0), json.at(1), json.at(2)};
}
template <typename Json>
void to_json(Json& json, const StepCount& count) {
  json = Json::array({count.steps, count.tokens});
}
template <typename Json>
void from_json(const Json& json, StepCount& count) {
  count = {json.at(0), json.at(1)};
}

/// By bin; those where nothing was counted are missing.
using Bins = std::map<std::size_t, Examined>;

struct NodeCounts {
  Bins by_draft_prob;  ///< D(token | path), of the draft's
  /// Looked-up tokens, which have no D; the estimate is of the chances that growth reckoned with.
  Examined looked_up;
  std::map<std::pair<std::int32_t, std::int32_t>, Examined> by_position;  ///< (depth, rank)
  /// The chance of acceptance that growth reckoned with; empty where growth reckoned with none.
  Bins by_chance;
  /// The number that judged the root's first child, where growth was told of it.
  std::map<std::size_t, StepCount> by_number;

  COPPICE_MEMBERS(by_draft_prob, looked_up, by_chance, by_number, by_position)

  /// Counts a judged tree: its accepted path as far as it was kept, and whether its last node ended
  /// the text (StepView::ends_in_tree()). `calibration`: by which it grew, or null.
  void add(const TokenTree& tree, std::span<const std::int32_t> path, bool ends = false,
           const AcceptanceCalibration* calibration = nullptr);
  NodeCounts& operator+=(const NodeCounts& other);
  Examined total() const;
  /// Whether add() can have made it: bins and places that there are, no more accepted than
  /// examined.
  bool is_sound() const;
};

}  // namespace coppice::study
