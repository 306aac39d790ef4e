#include "drafting/calibration.h"

#include <algorithm>

#include "base/judged_children.h"

namespace coppice {
namespace {

// Starts for any pair: what fits texts of the shipped pair (temperatures 0, 0.6 and 1) and, at a
// third of its weight, of one with half its acceptance.
constexpr AcceptanceModel::Start sampled_by_share = {
    {{1.07, 0.30, 0.0}, {-0.30, 0.23, 0.0}, {-0.99, 0.24, 0.0}}};
constexpr AcceptanceModel::Start sampled_by_number = {
    {{0.87, 0.32, 0.66}, {-0.36, 0.23, 0.10}, {-1.0, 0.24, 0.02}}};
// Beliefs are learned themselves, and a little too sure.
constexpr AcceptanceModel::Start by_belief = {{{0.1, 0.8, 0.0}, {0.1, 0.8, 0.0}, {0.1, 0.8, 0.0}}};

// Returns the acceptance of a position of which only the sibling rank is known: the shipped pair's.
const std::array<double, 4>& usual_position(AcceptanceRule draw) {
  static constexpr std::array<double, 4> sampled = {0.78, 0.36, 0.3, 0.11},
                                         top = {0.85, 0.5, 0.35, 0.3},
                                         coupled = {0.79, 0.53, 0.4, 0.15};
  if (draw == AcceptanceRule::greedy) return top;
  return draw == AcceptanceRule::coupled ? coupled : sampled;
}

}  // namespace

AcceptanceCalibration::AcceptanceCalibration(AcceptanceRule draw)
    : usual_(usual_position(draw)),
      by_share_(draw == AcceptanceRule::rejection ? sampled_by_share : by_belief),
      by_number_(sampled_by_number) {
  update();
}

void AcceptanceCalibration::expect(const AcceptanceCalibration& others, bool anew) {
  for (std::size_t r = 0; r < ranks; ++r) usual_[r] = others.of_rank(r).estimate(others.usual_[r]);
  if (anew) {
    by_share_.start_from(others.by_share_);
    by_number_.start_from(others.by_number_);
  }
  update();
}

void AcceptanceCalibration::fade(double left) {
  by_share_.fade(left);
  by_number_.fade(left);
  for (auto& of_rank : seen_) {
    for (Count& count : of_rank) {
      count.accepted *= left;
      count.seen *= left;
    }
  }
}

void AcceptanceCalibration::observe(std::int32_t rank, std::int32_t depth, double share,
                                    bool accepted, double uniform) {
  by_share_.observe(rank, share, accepted);
  if (uniform >= 0.0) by_number_.observe(rank, share, accepted, uniform);
  seen_[class_of_rank(rank)][class_of_depth(depth)] += {accepted ? 1.0 : 0.0, 1.0};
}

void AcceptanceCalibration::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  double left = 1.0;
  bool behind_certain = false;
  for_each_judged(tree, path, false, [&](std::int32_t node, bool accepted) {
    const auto n = static_cast<std::size_t>(node);
    if (tree.rank[n] == 0) {
      left = 1.0;
      behind_certain = false;
    }
    if (tree.is_certain(node)) {  // of what is drawn it says nothing
      behind_certain = true;
      return;
    }
    // Nor do those behind it: the draft draws them without what is usually its first choice, too.
    if (behind_certain) return;
    const auto mass = static_cast<double>(tree.belief[n]);
    observe(tree.rank[n], tree.depth[n], left > mass ? mass / left : 1.0, accepted,
            static_cast<double>(tree.uniform[n]));
    left = std::max(0.0, left - mass);
  });
  update();
}

AcceptanceCalibration::Count AcceptanceCalibration::of_rank(std::size_t rank) const {
  Count sum;
  for (const Count& count : seen_[rank]) sum += count;
  return sum;
}

void AcceptanceCalibration::update() {
  for (std::size_t r = 0; r < ranks; ++r) {
    const double rank_chance = of_rank(r).estimate(usual_[r]);
    for (std::size_t d = 0; d < depths; ++d) {
      position_[r][d] = seen_[r][d].estimate(rank_chance);
    }
  }
}

}  // namespace coppice
