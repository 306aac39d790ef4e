// Members of BasicChildDrawer. Included where it is instantiated: drafting/child_drawer.cc,
// drafting/planted_faults-inl.h and tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "drafting/belief.h"
#include "drafting/child_drawer.h"
#include "kernels/logits.h"

namespace coppice {

template <typename Decisions>
BasicChildDrawer<Decisions>::BasicChildDrawer(std::int64_t vocab_size, NoiseCache& noise,
                                              Decisions decide, std::int32_t cells,
                                              std::shared_ptr<SpareRows> spare)
    : decide_(std::move(decide)),
      noise_(noise),
      cells_(cells),
      distributions_(0, vocab_size, std::move(spare)) {
  // A draw is cheapest with as many blocks as tokens in a block.
  const double root = std::sqrt(static_cast<double>(vocab_size));
  block_ = 64 * std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(root / 64.0)));
  blocks_ = (static_cast<std::size_t>(vocab_size) + block_ - 1) / block_;
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::begin(const StepKey& key, AcceptanceRule draw,
                                        double inverse_temperature) {
  key_ = key;
  draw_ = draw;
  inverse_temperature_ = draw == AcceptanceRule::rejection ? 0.0 : inverse_temperature;
  end();
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::end() {
  distributions_.reset();
  nodes_.clear();
  excluded_.clear();
  places_used_ = 0;
}

template <typename Decisions>
std::span<float> BasicChildDrawer<Decisions>::prepare(std::int32_t node) {
  const auto index = static_cast<std::size_t>(node);
  if (nodes_.size() <= index) nodes_.resize(index + 1);
  nodes_[index] = Node{};
  nodes_[index].place = places_used_++;
  const auto places = static_cast<std::size_t>(places_used_);
  if (block_values_.size() < places * blocks_) {
    taken_.resize(places * blocks_ * (block_ / 64));  // first: the test above is by the other
    block_values_.resize(places * blocks_);
  }
  distributions_.grow_to(node + 1);
  return distributions_.row(node);
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::ready(std::int32_t node) {
  nodes_[static_cast<std::size_t>(node)].ready = true;
}

template <typename Decisions>
std::span<double> BasicChildDrawer<Decisions>::block_values(const Node& node) {
  return {block_values_.data() + static_cast<std::size_t>(node.place) * blocks_, blocks_};
}

template <typename Decisions>
std::span<std::uint64_t> BasicChildDrawer<Decisions>::taken_words(const Node& node) {
  const std::size_t words = blocks_ * (block_ / 64);
  return {taken_.data() + static_cast<std::size_t>(node.place) * words, words};
}

template <typename Decisions>
std::span<const float> BasicChildDrawer<Decisions>::noise_of(const Node& node) {
  if (draw_ != AcceptanceRule::coupled) return {};
  return noise_.row(key_.seed, key_.sequence,
                    key_.noise_position(static_cast<std::uint64_t>(node.depth)));
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::take(Node& node, std::span<const float> probs, TokenId token) {
  const auto at = static_cast<std::size_t>(token);
  ++node.drawn;
  taken_words(node)[at / 64] |= std::uint64_t{1} << (at % 64);
  summarise_block(node, probs, noise_of(node), at / block_);
  node.left.take(static_cast<double>(probs[at]));
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::exclude(std::int32_t node_id, TokenId token) {
  const auto index = static_cast<std::size_t>(node_id);
  if (index < nodes_.size() && nodes_[index].summarised) {
    take(nodes_[index], std::as_const(distributions_).row(node_id), token);
  } else {
    excluded_.push_back({node_id, token});  // until it is drawn from
  }
}

template <typename Decisions>
void BasicChildDrawer<Decisions>::start_drawing(const TokenTree& candidates, std::int32_t node_id) {
  const auto index = static_cast<std::size_t>(node_id);
  Node& node = nodes_[index];
  node.depth = candidates.depth[index];
  node.summarised = true;
  const auto taken = taken_words(node);
  std::fill(taken.begin(), taken.end(), 0);
  const std::span<const float> probs = std::as_const(distributions_).row(node_id);
  if (draw_ == AcceptanceRule::rejection) {
    block_masses(probs, block_, block_values(node));
  } else {
    const auto maxima = block_values(node);
    block_maxima(probs, noise_of(node), block_, maxima);
    if (inverse_temperature_ > 0.0) {
      node.beliefs = power_moments(probs, noise_of(node), block_, maxima, inverse_temperature_);
    }
  }
  for (const Excluded& other : excluded_) {
    if (other.node == node_id) take(node, probs, other.token);
  }
}

template <typename Decisions>
double BasicChildDrawer<Decisions>::score(const Node& node, std::size_t token, double prob) {
  const std::span<const float> noise = noise_of(node);
  return noise.empty() ? prob : prob * static_cast<double>(noise[token]);
}

template <typename Decisions>
std::optional<BeliefEvidence> BasicChildDrawer<Decisions>::evidence(std::int32_t node_id,
                                                                    TokenId token) {
  const auto index = static_cast<std::size_t>(node_id);
  if (!(inverse_temperature_ > 0.0) || index >= nodes_.size() || !nodes_[index].summarised) {
    return std::nullopt;
  }
  const Node& node = nodes_[index];
  const auto at = static_cast<std::size_t>(token);
  const auto prob = static_cast<double>(std::as_const(distributions_).row(node_id)[at]);
  if (!(prob > 0.0) || !(node.beliefs.sum > 0.0)) return std::nullopt;
  return evidence_of(node.beliefs, inverse_temperature_, score(node, at, prob));
}

// Anew from what is left, not by subtraction: a block's value is 0 exactly when nothing is left.
template <typename Decisions>
void BasicChildDrawer<Decisions>::summarise_block(const Node& node, std::span<const float> probs,
                                                  std::span<const float> noise, std::size_t block) {
  const auto taken = taken_words(node);
  double mass[4] = {0.0, 0.0, 0.0, 0.0};
  float largest = 0.0f;
  const std::size_t end = std::min(probs.size(), (block + 1) * block_);
  for (std::size_t begin = block * block_; begin < end; begin += 64) {
    float left[64] = {};
    const std::size_t count = std::min<std::size_t>(64, end - begin);
    std::copy_n(probs.data() + begin, count, left);
    for (std::uint64_t bits = taken[begin / 64]; bits != 0; bits &= bits - 1) {
      left[std::countr_zero(bits)] = 0.0f;
    }
    if (draw_ == AcceptanceRule::rejection) {
      for (std::size_t i = 0; i < 64; i += 4) {
        for (std::size_t j = 0; j < 4; ++j) mass[j] += static_cast<double>(left[i + j]);
      }
    } else {
      if (!noise.empty()) {
        for (std::size_t i = 0; i < count; ++i) left[i] *= noise[begin + i];
      }
      for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, left[i]);
    }
  }
  block_values(node)[block] = draw_ == AcceptanceRule::rejection
                                  ? (mass[0] + mass[1]) + (mass[2] + mass[3])
                                  : static_cast<double>(largest);
}

template <typename Decisions>
TokenId BasicChildDrawer<Decisions>::draw_sampled(const Node& node, std::span<const float> probs,
                                                  double u) {
  const auto masses = block_values(node);
  const auto taken = taken_words(node);
  const auto free_prob = [&](std::size_t i) {
    return (taken[i / 64] >> (i % 64) & 1) != 0 ? 0.0 : static_cast<double>(probs[i]);
  };
  double total = 0.0;
  for (double mass : masses) total += mass;
  if (!(total > 0.0)) return -1;
  const double wanted = u * total;
  double sum = 0.0;
  std::size_t block = 0, last_block = 0;
  for (; block < blocks_; ++block) {
    if (masses[block] > 0.0) last_block = block;
    if (sum + masses[block] > wanted) break;
    sum += masses[block];
  }
  // Where rounding carries u past the last mass, the last token that has some is taken.
  if (block == blocks_) {
    block = last_block;
    sum = -total;
  }
  const std::size_t end = std::min(probs.size(), (block + 1) * block_);
  TokenId last = -1;
  for (std::size_t i = block * block_; i < end; ++i) {
    const double prob = free_prob(i);
    if (!(prob > 0.0)) continue;
    sum += prob;
    last = static_cast<TokenId>(i);
    if (sum > wanted) break;
  }
  return last;
}

template <typename Decisions>
TokenId BasicChildDrawer<Decisions>::draw_largest(const Node& node, std::span<const float> probs,
                                                  std::span<const float> noise) {
  const auto values = block_values(node);
  const auto taken = taken_words(node);
  const auto best =
      static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  if (!(values[best] > 0.0)) return -1;
  const auto wanted = static_cast<float>(values[best]);
  const std::size_t end = std::min(probs.size(), (best + 1) * block_);
  for (std::size_t i = best * block_; i < end; ++i) {
    const float score = noise.empty() ? probs[i] : probs[i] * noise[i];
    if (score == wanted && (taken[i / 64] >> (i % 64) & 1) == 0) return static_cast<TokenId>(i);
  }
  return -1;
}

template <typename Decisions>
double BasicChildDrawer<Decisions>::belief_of(const TokenTree& candidates, std::int32_t node_id,
                                              TokenId token) {
  const auto index = static_cast<std::size_t>(node_id), at = static_cast<std::size_t>(token);
  if (index >= nodes_.size() || !nodes_[index].ready) return -1.0;
  const auto prob = static_cast<double>(std::as_const(distributions_).row(node_id)[at]);
  if (!(inverse_temperature_ > 0.0) || !(prob > 0.0)) return prob;
  if (!nodes_[index].summarised) start_drawing(candidates, node_id);
  const Node& node = nodes_[index];
  return static_cast<double>(belief(node.beliefs, inverse_temperature_, score(node, at, prob)));
}

template <typename Decisions>
double BasicChildDrawer<Decisions>::expected_share(std::int32_t node_id) {
  Node& node = nodes_[static_cast<std::size_t>(node_id)];
  if (draw_ != AcceptanceRule::rejection) return -1.0;
  if (!node.squares) {
    const std::span<const float> probs = std::as_const(distributions_).row(node_id);
    double sum[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= probs.size(); i += 8) {
      for (std::size_t j = 0; j < 8; ++j) {
        const auto mass = static_cast<double>(probs[i + j]);
        sum[j] += mass * mass;
      }
    }
    for (; i < probs.size(); ++i)
      sum[0] += static_cast<double>(probs[i]) * static_cast<double>(probs[i]);
    node.squares = std::accumulate(std::begin(sum), std::end(sum), 0.0);
  }
  if (node.summarised) return node.left.expected_share(*node.squares);
  MassLeft left;
  for (const Excluded& other : excluded_) {
    if (other.node == node_id)
      left.take(static_cast<double>(
          std::as_const(distributions_).row(node_id)[static_cast<std::size_t>(other.token)]));
  }
  return left.expected_share(*node.squares);
}

template <typename Decisions>
std::optional<DrawnChild> BasicChildDrawer<Decisions>::child(const TokenTree& candidates,
                                                             std::int32_t node_id,
                                                             std::int32_t rank) {
  const auto index = static_cast<std::size_t>(node_id);
  const bool ready = index < nodes_.size() && nodes_[index].ready;
  if (ready && !nodes_[index].summarised) start_drawing(candidates, node_id);
  if (!ready || nodes_[index].drawn != rank) {
    throw_failure(cat("child drawer: rank ", rank, " of node ", node_id,
                      " asked for before its distribution or its earlier ranks"));
  }
  Node& node = nodes_[index];
  const std::span<const float> probs = std::as_const(distributions_).row(node_id);
  const std::span<const float> noise = noise_of(node);
  const RandomAddress at_rank{RandomStream::draft, key_, candidates.key[index],
                              static_cast<std::uint64_t>(rank)};
  const TokenId token =
      draw_ == AcceptanceRule::rejection
          ? decide_(at_rank, [&](double u) { return draw_sampled(node, probs, u); })
          : draw_largest(node, probs, noise);
  if (token < 0) return std::nullopt;
  take(node, probs, token);
  const auto at = static_cast<std::size_t>(token);
  DrawnChild drawn{token, probs[at]};
  if (inverse_temperature_ > 0.0) {
    drawn.belief =
        belief(node.beliefs, inverse_temperature_, score(node, at, static_cast<double>(probs[at])));
  } else if (draw_ == AcceptanceRule::rejection && cells_ > 0) {
    drawn.uniform = decide_.look(RandomAddress{RandomStream::accept, key_, candidates.key[index],
                                               static_cast<std::uint64_t>(rank)},
                                 [&](double u) { return acceptance_cell(u, cells_); });
  }
  return drawn;
}

}  // namespace coppice
