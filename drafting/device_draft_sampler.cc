#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"

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
      break;  // faults of growth, which a device has no part in
  }
  return DeviceFault::none;
}

class DeviceDraftSampler final : public DraftSampler {
 public:
  DeviceDraftSampler(DeviceSampler& sampler, std::int32_t store_rows)
      : sampler_(sampler), store_rows_(store_rows) {}

  void begin(SequenceState& state, const StepKey& key, const SamplingParams& params, ChildDraw draw,
             double) override {
    state_ = &state;
    batch_ = {};
    batch_.key = key;
    batch_.params = params;
    batch_.noise = noise_of(draw);
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
      node.children.clear();
      rows_.push_back({node.store, id, arena.depth[n], node.key});
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
      const DrawRow row = {node.store, id, arena.depth[static_cast<std::size_t>(id)], node.key};
      batch_.rows = {&row, 1};
      update_penalty(arena);
      note(node, sampler_.more(batch_, 0, node.children.back().token));
    }
    if (r >= node.children.size()) return std::nullopt;
    DrawnChild drawn{node.children[r].token, node.children[r].prob};
    if (batch_.noise == DeviceNoise::sampled) {
      drawn.uniform = acceptance_cell(uniform(RandomStream::accept, batch_.key, node.key, r));
    }
    return drawn;
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
    return make_device_draft_sampler(sampler_, store_rows_);
  }

 private:
  struct Node {
    std::int32_t store = -1;  ///< -1: not evaluated, or forgotten
    std::uint64_t key = 0;
    bool exhausted = false;  ///< no child is left beyond those listed
    std::vector<DeviceChild> children;
  };

  void update_penalty(const TokenTree& arena) {
    penalty_ = {state_->counts.counts(), arena.token, arena.parent};
    batch_.penalty = batch_.params.repetition_penalty == 1.0 ? nullptr : &penalty_;
  }

  static void note(Node& node, const DrawnChildren& drawn) {
    node.exhausted = drawn.exhausted;
    node.children.insert(node.children.end(), drawn.list.begin(), drawn.list.end());
  }

  DeviceSampler& sampler_;
  const std::int32_t store_rows_;
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
