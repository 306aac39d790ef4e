#include "drafting/calibration.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

// The non-decreasing values nearest to `values` in the weighted squares.
template <std::size_t size>
void make_monotone(std::array<double, size>& values, const std::array<double, size>& weights) {
  struct Block {
    double mean;
    double weight;
    std::size_t end;
  };
  std::array<Block, size> blocks{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; ++i) {
    blocks[count++] = {values[i], weights[i], i + 1};
    while (count > 1 && blocks[count - 2].mean > blocks[count - 1].mean) {
      const Block& last = blocks[count - 1];
      Block& pooled = blocks[count - 2];
      const double weight = pooled.weight + last.weight;
      pooled = {(pooled.mean * pooled.weight + last.mean * last.weight) / weight, weight, last.end};
      --count;
    }
  }
  std::size_t i = 0;
  for (std::size_t b = 0; b < count; ++b) {
    for (; i < blocks[b].end; ++i) values[i] = blocks[b].mean;
  }
}

// What the shipped pair does at temperatures 0 (top) and 0.6 on 24 texts (coppice study), a start
// for any pair, by sibling rank.
struct Usual {
  std::array<double, 4> position;
  std::array<double, 4> least, most;  ///< of a child that has none, and all, of the draft's mass
};

const Usual& usual_of(ChildDraw draw) {
  static constexpr Usual sampled = {
      {0.78, 0.36, 0.3, 0.11}, {0.48, 0.2, 0.17, 0.06}, {0.98, 0.87, 0.96, 0.96}};
  static constexpr Usual top = {{0.85, 0.5, 0.35, 0.3}, {0.0, 0.2, 0.2, 0.2}, {1.0, 1.0, 1.0, 1.0}};
  static constexpr Usual coupled = {
      {0.79, 0.53, 0.4, 0.15}, {0.57, 0.42, 0.32, 0.1}, {0.98, 0.96, 0.96, 0.96}};
  switch (draw) {
    case ChildDraw::top:
      return top;
    case ChildDraw::coupled:
      return coupled;
    case ChildDraw::sampled:
      break;
  }
  return sampled;
}

double usual_child(ChildDraw draw, std::size_t rank, double share) {
  double part = rank == 0 ? share : share * share;
  if (rank == 0 && draw == ChildDraw::top) part = 1.0 - std::pow(1.0 - share, 1.6);
  const Usual& usual = usual_of(draw);
  return usual.least[rank] + (usual.most[rank] - usual.least[rank]) * part;
}

}  // namespace

AcceptanceCalibration::AcceptanceCalibration(std::optional<ChildDraw> usual, bool believes)
    : usual_(usual), believes_(believes) {
  update();
}

void AcceptanceCalibration::observe(std::int32_t rank, std::int32_t depth, double share,
                                    bool accepted, double uniform) {
  if (uniform >= 0.0) ratios_.observe(rank, share, uniform, accepted);
  auto& counts = seen_[class_of_rank(rank)][class_of_depth(depth)];
  const auto above = static_cast<std::size_t>(
      std::upper_bound(knots.begin() + 1, knots.end() - 1, share) - knots.begin());
  const double part =
      std::clamp((share - knots[above - 1]) / (knots[above] - knots[above - 1]), 0.0, 1.0);
  const auto add = [&](Count& count, double weight) {
    count.seen += weight;
    count.accepted += accepted ? weight : 0.0;
  };
  add(counts[above - 1], 1.0 - part);
  add(counts[above], part);
}

void AcceptanceCalibration::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  std::int32_t parent = 0;
  for (std::size_t step = 0; step <= path.size(); ++step) {
    const std::int32_t accepted = step < path.size() ? path[step] : -1;
    double left = 1.0;
    for (std::int32_t node = parent + 1; node < tree.nodes(); ++node) {
      const auto n = static_cast<std::size_t>(node);
      if (tree.parent[n] != parent) continue;
      const auto mass = static_cast<double>(tree.belief[n]);
      observe(tree.rank[n], tree.depth[n], left > mass ? mass / left : 1.0, node == accepted,
              static_cast<double>(tree.uniform[n]));
      left = std::max(0.0, left - mass);
      if (node == accepted) break;
    }
    parent = accepted;
  }
  update();
}

void AcceptanceCalibration::update() {
  std::array<Count, knots.size()> of_all{};
  std::array<std::array<Count, knots.size()>, ranks> of_rank{};
  Count total;
  std::array<Count, ranks> total_of_rank{};
  std::array<std::array<Count, depths>, ranks> total_of_class{};
  const auto add = [](Count& sum, const Count& count) {
    sum.accepted += count.accepted;
    sum.seen += count.seen;
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t d = 0; d < depths; ++d) {
      for (std::size_t k = 0; k < knots.size(); ++k) {
        const Count& count = seen_[r][d][k];
        add(of_all[k], count);
        add(of_rank[r][k], count);
        add(total_of_class[r][d], count);
      }
      add(total_of_rank[r], total_of_class[r][d]);
    }
    add(total, total_of_rank[r]);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const double rank_chance =
        total_of_rank[r].estimate(usual_ ? usual_of(*usual_).position[r] : total.estimate(1.0));
    for (std::size_t d = 0; d < depths; ++d) {
      position_[r][d] = total_of_class[r][d].estimate(rank_chance);
      Curve& curve = curve_[r][d];
      Curve weights;
      for (std::size_t k = 0; k < knots.size(); ++k) {
        const double widest =
            believes_ ? knots[k]
                      : (usual_ ? usual_child(*usual_, r, knots[k]) : of_all[k].estimate(knots[k]));
        const double wider = of_rank[r][k].estimate(widest);
        curve[k] = seen_[r][d][k].estimate(wider);
        weights[k] = seen_[r][d][k].seen + prior_weight;
      }
      make_monotone(curve, weights);
    }
  }
}

double AcceptanceCalibration::first_child(double prior, double weight) const {
  Count first;
  for (const auto& of_depth : seen_[0]) {
    for (const Count& count : of_depth) {
      first.accepted += count.accepted;
      first.seen += count.seen;
    }
  }
  return first.estimate(prior, weight);
}

double AcceptanceCalibration::child(std::int32_t rank, std::int32_t depth, double share,
                                    double uniform) const {
  if (uniform >= 0.0) return ratios_.chance(rank, share, uniform);
  const Curve& curve = curve_[class_of_rank(rank)][class_of_depth(depth)];
  const auto above = static_cast<std::size_t>(
      std::upper_bound(knots.begin() + 1, knots.end() - 1, share) - knots.begin());
  const double part =
      std::clamp((share - knots[above - 1]) / (knots[above] - knots[above - 1]), 0.0, 1.0);
  return curve[above - 1] + part * (curve[above] - curve[above - 1]);
}

}  // namespace coppice
