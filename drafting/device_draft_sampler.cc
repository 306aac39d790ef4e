#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rule_end.h"
#include "drafting/belief.h"
#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"
#include "drafting/mass_left.h"
#include "models/penalty_text.h"

namespace coppice {
namespace {

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

/// Rows of the device's store, which all trees share.
class StoreRows {
 public:
  explicit StoreRows(std::int32_t rows) : rows_(rows), free_(static_cast<std::size_t>(rows)) {
    std::iota(free_.rbegin(), free_.rend(), 0);
  }
  std::int32_t take() {
    if (free_.empty()) {
      throw_failure(cat("draft: the trees of a step have more than ", rows_,
                        " evaluated nodes; use smaller trees or raise max_batch_rows"));
    }
    const std::int32_t row = free_.back();
    free_.pop_back();
    return row;
  }
  /// Nothing is allocated: it had room for all.
  void give_back(std::int32_t row) { free_.push_back(row); }

 private:
  const std::int32_t rows_;
  std::vector<std::int32_t> free_;
};

/// What all samplers use: the device's sampler, and the rows of the pass at hand.
struct DeviceDrawing {
  DeviceSampler& sampler;
  StoreRows store;
  std::vector<DrawText> texts = {};
  std::vector<DrawRow> rows = {};
  std::vector<DrawnChildren> drawn = {};  ///< by row
  std::size_t taken = 0;                  ///< of these
};

class DeviceDraftSampler final : public DraftSampler {
 public:
  DeviceDraftSampler(DeviceDrawing& drawing, DrawingFault fault)
      : drawing_(drawing), fault_(fault) {}
  ~DeviceDraftSampler() override { end(); }

  void begin(SequenceState& state, const StepKey& key, const SamplingParams& params,
             AcceptanceRule draw, double inverse_temperature) override {
    end();
    state_ = &state;
    text_ = {};
    text_.key = key;
    text_.params = params;
    text_.rule = draw;
    text_.belief_inverse_temperature =
        draw == AcceptanceRule::rejection ? 0.0 : inverse_temperature;
  }

  // Nodes' lists keep their memory.
  void end() override {
    for (Node& node : nodes_) {
      if (node.store >= 0) drawing_.store.give_back(std::exchange(node.store, -1));
    }
    excluded_.clear();
  }

  void stage(const TokenTree& candidates, std::span<const std::int32_t> nodes) override {
    const auto text = static_cast<std::int32_t>(drawing_.texts.size());
    nodes_.resize(std::max(nodes_.size(), candidates.token.size()));
    for (const std::int32_t id : nodes) {
      const auto n = static_cast<std::size_t>(id);
      Node& node = nodes_[n];
      node.store = drawing_.store.take();
      node.key = candidates.key[n];
      node.depth = candidates.depth[n];
      node.drawn = node.next = 0;
      for (const Excluded& other : excluded_) {
        if (other.node == id) ++node.drawn;
      }
      node.left = {};
      node.children.clear();
      node.scores.clear();
      drawing_.rows.push_back({node.store, id, node.depth, node.key, text,
                               ends_text(candidates, id) ? none_ : candidates.mask(id)});
    }
    update_penalty(candidates);
    drawing_.texts.push_back(text_);
  }

  void take(const TokenTree&, std::span<const std::int32_t> nodes) override {
    for (const std::int32_t node : nodes) {
      note(nodes_[static_cast<std::size_t>(node)], drawing_.drawn[drawing_.taken++]);
    }
  }

  void forget(std::span<const std::int32_t> nodes) override {
    for (const std::int32_t id : nodes) {
      const auto n = static_cast<std::size_t>(id);
      if (n >= nodes_.size() || nodes_[n].store < 0) continue;
      drawing_.store.give_back(std::exchange(nodes_[n].store, -1));
    }
  }

  void exclude(std::int32_t id, TokenId token) override {
    excluded_.push_back({id, token});
    const auto n = static_cast<std::size_t>(id);
    if (n < nodes_.size() && nodes_[n].store >= 0) ++nodes_[n].drawn;
  }

  // Noise is by token: without the excluded ones, the list is in the order in which the others
  // would have been drawn from what D has beside them.
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t id,
                                  std::int32_t rank) override {
    Node& node = nodes_.at(static_cast<std::size_t>(id));
    if (rank != node.drawn) {
      throw_failure(cat("draft sampler: rank ", rank, " of node ", id, " asked for after rank ",
                        node.drawn - 1));
    }
    for (;; ++node.next) {
      if (node.next >= node.children.size() && !node.exhausted) {
        update_penalty(candidates);
        note(node, drawing_.sampler.more(text_, row_of(node, id), node.children.back().token));
      }
      if (node.next >= node.children.size()) return std::nullopt;
      const DeviceChild& next = node.children[node.next];
      node.left.take(static_cast<double>(next.prob));
      if (!is_excluded(id, next.token)) break;
    }
    const std::size_t at = node.next++;
    ++node.drawn;
    DrawnChild drawn{node.children[at].token, node.children[at].prob};
    if (text_.rule == AcceptanceRule::rejection) {
      drawn.uniform = acceptance_cell(judging_number(node.key, static_cast<std::uint64_t>(rank)));
    } else if (node.moments.sum > 0.0) {
      drawn.belief = belief(node.moments, text_.belief_inverse_temperature,
                            static_cast<double>(node.scores[at]));
    }
    return drawn;
  }

  // Under rejection the list says which tokens would be drawn first: growth must not look there.
  // Elsewhere a token that is not listed has less than the last that is; to ask would be to wait.
  double belief_of(const TokenTree&, std::int32_t id, TokenId token) override {
    const auto n = static_cast<std::size_t>(id);
    if (text_.rule == AcceptanceRule::rejection || n >= nodes_.size()) return -1.0;
    const Node& node = nodes_[n];
    if (node.store < 0 || !(node.moments.sum > 0.0)) return -1.0;
    const auto at = std::ranges::find(node.children, token, &DeviceChild::token);
    const bool listed = at != node.children.end();
    if (node.scores.empty() || (!listed && node.exhausted)) return 0.0;
    const auto place = listed ? at - node.children.begin() : std::ssize(node.scores) - 1;
    const auto believed = static_cast<double>(
        belief(node.moments, text_.belief_inverse_temperature,
               static_cast<double>(node.scores[static_cast<std::size_t>(place)])));
    return listed ? believed : 0.5 * believed;
  }

  double expected_share(std::int32_t id) override {
    const Node& node = nodes_.at(static_cast<std::size_t>(id));
    return node.squares < 0.0 ? -1.0 : node.left.expected_share(node.squares);
  }

  // Only the token that ends a step can be none of the children listed: its score is asked for. A
  // bound on it (the last child's) would do no harm to the text, but would pull the inverse
  // temperature up.
  std::optional<BeliefEvidence> evidence(std::int32_t id, TokenId token) override {
    const auto n = static_cast<std::size_t>(id);
    if (!(text_.belief_inverse_temperature > 0.0) || n >= nodes_.size()) return std::nullopt;
    const Node& node = nodes_[n];
    if (node.store < 0 || node.next == 0 || !(node.moments.sum > 0.0)) return std::nullopt;
    const auto at = std::find_if(node.children.begin(), node.children.end(),
                                 [&](const DeviceChild& child) { return child.token == token; });
    float score = 0.0f;
    if (at != node.children.end()) {
      score = node.scores[static_cast<std::size_t>(at - node.children.begin())];
    } else if (!node.exhausted) {
      score = drawing_.sampler.score_of(text_, row_of(node, id), token);
    }
    if (!(score > 0.0f)) return std::nullopt;  // D excludes it
    return evidence_of(node.moments, text_.belief_inverse_temperature, static_cast<double>(score));
  }

  std::int32_t store_row(std::int32_t id) const override {
    const auto n = static_cast<std::size_t>(id);
    return n < nodes_.size() ? nodes_[n].store : -1;
  }

 private:
  struct Node {
    std::int32_t store = -1;  ///< -1: not evaluated, or forgotten
    std::int32_t depth = 0;
    std::uint64_t key = 0;
    std::int32_t drawn = 0;  ///< children so far, drawn or excluded
    std::size_t next = 0;    ///< in `children`, of the next one to draw
    bool exhausted = false;  ///< no child is left beyond those listed
    MassLeft left;           ///< by those
    double squares = -1.0;   ///< of all of D, where children are sampled
    PowerMoments
        moments;  ///< of its row's scores, where there is an inverse temperature of beliefs
    std::vector<DeviceChild> children;
    std::vector<float> scores;  ///< of the children, likewise
  };

  struct Excluded {
    std::int32_t node;
    TokenId token;
  };
  bool is_excluded(std::int32_t id, TokenId token) const {
    return std::any_of(excluded_.begin(), excluded_.end(), [&](const Excluded& other) {
      return other.node == id && other.token == token;
    });
  }

  /// Returns the number that judges a node's child with this rank (base/random.h); under a planted
  /// fault, another child's.
  double judging_number(std::uint64_t node_key, std::uint64_t rank) const {
    StepKey key = text_.key;
    if (fault_ == DrawingFault::looks_at_next_sibling) ++rank;
    if (fault_ == DrawingFault::looks_at_next_step) ++key.step;
    return uniform(RandomStream::accept, key, node_key, rank);
  }

  void update_penalty(const TokenTree& candidates) {
    penalty_ = penalty_text(*state_, candidates.token, candidates.parent);
    text_.penalty = changes_logits(*state_, text_.params) ? &penalty_ : nullptr;
  }

  static DrawRow row_of(const Node& node, std::int32_t id) {
    return {node.store, id, node.depth, node.key, 0, nullptr};
  }

  static void note(Node& node, const DrawnChildren& drawn) {
    node.exhausted = drawn.exhausted;
    node.moments = drawn.moments;
    node.squares = drawn.squares;
    node.children.insert(node.children.end(), drawn.list.begin(), drawn.list.end());
    node.scores.insert(node.scores.end(), drawn.scores.begin(), drawn.scores.end());
  }

  DeviceDrawing& drawing_;
  const DrawingFault fault_;
  SequenceState* state_ = nullptr;
  DrawText text_;
  PenaltyText penalty_;
  std::vector<Node> nodes_;  ///< by candidate
  std::vector<Excluded> excluded_;
  const std::shared_ptr<const TokenMask> none_ = std::make_shared<TokenMask>();
};

class DeviceDraftSampling final : public DraftSampling {
 public:
  DeviceDraftSampling(DeviceSampler& sampler, std::int32_t store_rows)
      : drawing_{sampler, StoreRows(store_rows)} {}

  std::unique_ptr<DraftSampler> make() override {
    return std::make_unique<DeviceDraftSampler>(drawing_, fault_);
  }

  void begin_pass() override {
    drawing_.texts.clear();
    drawing_.rows.clear();
  }

  PassEpilogue* epilogue() override {
    drawing_.sampler.stage_draw({drawing_.texts, drawing_.rows});
    return &drawing_.sampler.draw_epilogue();
  }

  void collect(const float*) override {
    drawing_.taken = 0;
    drawing_.drawn.resize(drawing_.rows.size());
    drawing_.sampler.collect_draw(drawing_.drawn);
  }

  PassEpilogue* prepare_scores(std::span<const TokenId> next,
                               const SamplingParams& params) override {
    drawing_.sampler.stage_score(next, params);
    return &drawing_.sampler.score_epilogue();
  }

  void take_scores(std::span<const TokenId>, const SamplingParams&, const float*,
                   std::span<float> out) override {
    drawing_.sampler.collect_scores(out);
  }

  void plant(DrawingFault fault) override {
    fault_ = fault;
    drawing_.sampler.plant(fault_of(fault));
  }

 private:
  DeviceDrawing drawing_;
  DrawingFault fault_ = DrawingFault::none;
};

}  // namespace

std::unique_ptr<DraftSampling> make_device_draft_sampling(DeviceSampler& sampler,
                                                          std::int32_t store_rows) {
  return std::make_unique<DeviceDraftSampling>(sampler, store_rows);
}

}  // namespace coppice
