// Faults of drawing children, planted from outside the drawer, over any source of decisions.
// Included by drafting/host_draft_sampler.cc and tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "drafting/child_drawer-inl.h"
#include "drafting/planted_faults.h"

namespace coppice {

/// Decisions by addresses that nodes share.
template <typename Decisions>
class FaultyDrawing {
 public:
  FaultyDrawing(DrawingFault fault, Decisions decide) : fault_(fault), decide_(std::move(decide)) {}

  template <typename Outcome>
  auto operator()(RandomAddress at, const Outcome& outcome) {
    share_noise(at);
    if (fault_ == DrawingFault::retry_shares_noise) {
      at.key.step = 0;
      at.node_key += at.key.noise_position(0);
    }
    return decide_(at, outcome);
  }
  template <typename Outcome>
  auto look(RandomAddress at, const Outcome& outcome) {
    share_noise(at);
    if (fault_ == DrawingFault::looks_at_next_sibling) ++at.index;
    if (fault_ == DrawingFault::looks_at_next_step) ++at.key.step;
    return decide_.look(at, outcome);
  }
  /// Of the node that the next decisions are about.
  void at_depth(std::int32_t depth) { depth_ = static_cast<std::uint64_t>(depth); }

 private:
  /// By the two faults that share noise, a key counts edges from the root.
  void share_noise(RandomAddress& at) const {
    if (fault_ == DrawingFault::same_depth_shares_noise ||
        fault_ == DrawingFault::retry_shares_noise) {
      at.node_key = root_node_key + depth_;
    }
  }

  std::uint64_t depth_ = 0;
  DrawingFault fault_;
  Decisions decide_;
};

/// BasicChildDrawer with a fault.
template <typename Decisions>
class FaultyChildDrawer {
 public:
  FaultyChildDrawer(std::int64_t vocab_size, NoiseCache& noise, DrawingFault fault,
                    Decisions decide = {}, std::int32_t cells = acceptance_cells,
                    std::shared_ptr<SpareRows> spare = nullptr)
      : narrows_(fault == DrawingFault::declared_is_not_sampled),
        drawer_(vocab_size, noise, FaultyDrawing<Decisions>(fault, std::move(decide)), cells,
                spare),
        declared_(0, vocab_size, spare) {}

  void begin(const StepKey& key, AcceptanceRule draw, double inverse_temperature = 1.0) {
    drawer_.begin(key, draw, inverse_temperature);
    declared_.reset();
  }
  void end() {
    drawer_.end();
    declared_.reset();
  }
  std::span<float> prepare(std::int32_t node) {
    sampled_from_ = drawer_.prepare(node);
    if (!narrows_) return sampled_from_;
    declared_.grow_to(node + 1);
    return declared_.row(node);
  }
  void ready(std::int32_t node) {
    if (narrows_) {
      const std::span<const float> declared = declared_.row(node);
      std::copy(declared.begin(), declared.end(), sampled_from_.begin());
      keep_two(sampled_from_);
    }
    drawer_.ready(node);
  }
  void exclude(std::int32_t node, TokenId token) { drawer_.exclude(node, token); }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) {
    drawer_.decisions().at_depth(candidates.depth[static_cast<std::size_t>(node)]);
    return drawer_.child(candidates, node, rank);
  }
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) {
    return drawer_.belief_of(candidates, node, token);
  }
  double expected_share(std::int32_t node) { return drawer_.expected_share(node); }
  std::optional<BeliefEvidence> evidence(std::int32_t node, TokenId token) {
    return drawer_.evidence(node, token);
  }
  const DistributionTable& distributions() const {
    return narrows_ ? declared_ : drawer_.distributions();
  }

 private:
  static void keep_two(std::span<float> probs) {
    if (probs.size() < 3) return;
    std::vector<TokenId> order(probs.size());
    std::iota(order.begin(), order.end(), 0);
    std::nth_element(order.begin(), order.begin() + 1, order.end(), [&](TokenId a, TokenId b) {
      return probs[static_cast<std::size_t>(a)] > probs[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 2; i < order.size(); ++i) probs[static_cast<std::size_t>(order[i])] = 0.0f;
  }

  bool narrows_;
  BasicChildDrawer<FaultyDrawing<Decisions>> drawer_;
  DistributionTable declared_;     ///< what distributions() declares, where that differs
  std::span<float> sampled_from_;  ///< the row of the node prepared last
};

}  // namespace coppice
