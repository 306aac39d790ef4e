#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "drafting/belief.h"
#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"
#include "drafting/mass_left.h"

namespace coppice {
namespace {

DeviceNoise noise_of(ChildDraw draw) {
  switch (draw) {
    case ChildDraw::sampled:
      return DeviceNoise::sampled;
    case ChildDraw::top:
      return DeviceNoise::top;
    case ChildDraw::coupled:
      return DeviceNoise::coupled;
  }
  return DeviceNoise::sampled;
}

DeviceFault fault_of(DrawingFault fault) {
  switch (fault) {
    case DrawingFault::none:
      return DeviceFault::none;
    case DrawingFault::same_depth_shares_noise:
      return DeviceFault::same_depth_shares_noise;
    case DrawingFault::retry_shares_noise:
      return DeviceFault::retry_shares_noise;
    case DrawingFault::declared_is_not_sampled:
      return DeviceFault::declared_is_not_sampled;
    case DrawingFault::looks_at_next_sibling:
    case DrawingFault::looks_at_next_step:
      break;  // faults of growth, planted on the host
  }
  return DeviceFault::none;
}

class DeviceDraftSampler final : public DraftSampler {
 public:
  DeviceDraftSampler(DeviceSampler& sampler, std::int32_t store_rows,
                     DrawingFault fault = DrawingFault::none)
      : sampler_(sampler), store_rows_(store_rows), fault_(fault) {}

  void begin(SequenceState& state, const StepKey& key, const SamplingParams& params, ChildDraw draw,
             double sharpness) override {
    state_ = &state;
    batch_ = {};
    batch_.key = key;
    batch_.params = params;
    batch_.noise = noise_of(draw);
    batch_.sharpness = draw == ChildDraw::sampled ? 0.0 : sharpness;
    for (Node& node : nodes_) node.store = -1;  // their lists keep their memory
    free_store_.resize(static_cast<std::size_t>(store_rows_));
    std::iota(free_store_.rbegin(), free_store_.rend(), 0);
  }

  PassTail* prepare(const TokenTree& arena, std::span<const std::int32_t> nodes) override {
    nodes_.resize(std::max(nodes_.size(), arena.token.size()));
    rows_.clear();
    for (const std::int32_t id : nodes) {
      const auto n = static_cast<std::size_t>(id);
      Node& node = nodes_[n];
      if (free_store_.empty()) {
        throw_failure(cat("draft: more than ", store_rows_, " nodes are evaluated at a time"));
      }
      node.store = free_store_.back();
      free_store_.pop_back();
      node.key = arena.parent[n] < 0
                     ? root_node_key
                     : child_node_key(nodes_[static_cast<std::size_t>(arena.parent[n])].key,
                                      arena.rank[n]);
      node.depth = arena.depth[n];
      node.drawn = 0;
      node.left = {};
      node.children.clear();
      node.scores.clear();
      rows_.push_back({node.store, id, node.depth, node.key});
    }
    batch_.rows = rows_;
    update_penalty(arena);
    sampler_.stage_draw(batch_);
    return &sampler_.draw_tail();
  }

  void wait() override {
    drawn_.resize(rows_.size());
    sampler_.collect_draw(drawn_);
  }

  void take(const TokenTree&, std::span<const std::int32_t> nodes, const float*) override {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      note(nodes_[static_cast<std::size_t>(nodes[i])], drawn_[i]);
    }
  }

  void forget(std::span<const std::int32_t> nodes) override {
    for (const std::int32_t id : nodes) {
      const auto n = static_cast<std::size_t>(id);
      if (n >= nodes_.size() || nodes_[n].store < 0) continue;
      free_store_.push_back(nodes_[n].store);
      nodes_[n].store = -1;
    }
  }

  std::optional<DrawnChild> child(const TokenTree& arena, std::int32_t id,
                                  std::int32_t rank) override {
    Node& node = nodes_.at(static_cast<std::size_t>(id));
    const auto r = static_cast<std::size_t>(rank);
    if (r >= node.children.size() && !node.exhausted) {
      const DrawRow row = {node.store, id, node.depth, node.key};
      batch_.rows = {&row, 1};
      update_penalty(arena);
      note(node, sampler_.more(batch_, 0, node.children.back().token));
    }
    if (r >= node.children.size()) return std::nullopt;
    if (r == node.drawn) {
      ++node.drawn;
      node.left.take(static_cast<double>(node.children[r].prob));
    }
    DrawnChild drawn{node.children[r].token, node.children[r].prob};
    if (batch_.noise == DeviceNoise::sampled) {
      drawn.uniform = acceptance_cell(judging_number(node.key, r));
    } else if (node.moments.sum > 0.0) {
      drawn.belief = belief(node.moments, batch_.sharpness, static_cast<double>(node.scores[r]));
    }
    return drawn;
  }

  double expected_share(std::int32_t id) override {
    const Node& node = nodes_.at(static_cast<std::size_t>(id));
    return node.squares < 0.0 ? -1.0 : node.left.expected_share(node.squares);
  }

  // Only the token that ends a step can be none of the children listed: its score is asked for. A
  // bound on it (the last child's) would do no harm to the text, but would pull the sharpness up.
  std::optional<BeliefEvidence> evidence(std::int32_t id, TokenId token) override {
    const auto n = static_cast<std::size_t>(id);
    if (!(batch_.sharpness > 0.0) || n >= nodes_.size()) return std::nullopt;
    const Node& node = nodes_[n];
    if (node.store < 0 || node.drawn == 0 || !(node.moments.sum > 0.0)) return std::nullopt;
    const auto at = std::find_if(node.children.begin(), node.children.end(),
                                 [&](const DeviceChild& child) { return child.token == token; });
    float score = 0.0f;
    if (at != node.children.end()) {
      score = node.scores[static_cast<std::size_t>(at - node.children.begin())];
    } else if (!node.exhausted) {
      const DrawRow row = {node.store, id, node.depth, node.key};
      batch_.rows = {&row, 1};
      score = sampler_.score_of(batch_, 0, token);
    }
    if (!(score > 0.0f)) return std::nullopt;  // D excludes it
    return evidence_of(node.moments, batch_.sharpness, static_cast<double>(score));
  }

  PassTail* prepare_scores(std::span<const TokenId> next, const SamplingParams& params) override {
    sampler_.stage_score(next, params);
    return &sampler_.score_tail();
  }

  double take_scores(std::span<const TokenId> next, const SamplingParams&, const float*) override {
    scores_.resize(next.size());
    sampler_.collect_scores(scores_);
    double sum = 0.0;
    for (const float score : scores_) sum += static_cast<double>(score);
    return sum / static_cast<double>(next.size());
  }

  std::int32_t store_row(std::int32_t id) const override {
    const auto n = static_cast<std::size_t>(id);
    return n < nodes_.size() ? nodes_[n].store : -1;
  }

  std::unique_ptr<DraftSampler> with(DrawingFault fault) const override {
    sampler_.plant(fault_of(fault));
    return std::make_unique<DeviceDraftSampler>(sampler_, store_rows_, fault);
  }

 private:
  struct Node {
    std::int32_t store = -1;  ///< -1: not evaluated, or forgotten
    std::int32_t depth = 0;
    std::uint64_t key = 0;
    std::size_t drawn = 0;   ///< children asked for
    bool exhausted = false;  ///< no child is left beyond those listed
    MassLeft left;           ///< by those
    double squares = -1.0;   ///< of all of D, where children are sampled
    PowerMoments moments;    ///< of its row's scores, where there is a sharpness
    std::vector<DeviceChild> children;
    std::vector<float> scores;  ///< of the children, likewise
  };

  /// Of a node's child with this rank (base/random.h); with a planted fault, of another.
  double judging_number(std::uint64_t node_key, std::uint64_t rank) const {
    StepKey key = batch_.key;
    if (fault_ == DrawingFault::looks_at_next_sibling) ++rank;
    if (fault_ == DrawingFault::looks_at_next_step) ++key.step;
    return uniform(RandomStream::accept, key, node_key, rank);
  }

  void update_penalty(const TokenTree& arena) {
    penalty_ = {state_->counts.counts(), arena.token, arena.parent};
    batch_.penalty = batch_.params.repetition_penalty == 1.0 ? nullptr : &penalty_;
  }

  static void note(Node& node, const DrawnChildren& drawn) {
    node.exhausted = drawn.exhausted;
    node.moments = drawn.moments;
    node.squares = drawn.squares;
    node.children.insert(node.children.end(), drawn.list.begin(), drawn.list.end());
    node.scores.insert(node.scores.end(), drawn.scores.begin(), drawn.scores.end());
  }

  DeviceSampler& sampler_;
  const std::int32_t store_rows_;
  const DrawingFault fault_;
  SequenceState* state_ = nullptr;
  DrawBatch batch_;
  PenaltyText penalty_;
  std::vector<Node> nodes_;  ///< by arena node
  std::vector<std::int32_t> free_store_;
  std::vector<DrawRow> rows_;
  std::vector<DrawnChildren> drawn_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<DraftSampler> make_device_draft_sampler(DeviceSampler& sampler,
                                                        std::int32_t store_rows) {
  return std::make_unique<DeviceDraftSampler>(sampler, store_rows);
}

}  // namespace coppice
