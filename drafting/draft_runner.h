// The draft model as a source of tree nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/step_seconds.h"
#include "base/tree_order.h"
#include "drafting/draft_sampler.h"
#include "drafting/grow.h"
#include "models/prefix_pass.h"
#include "models/sequence_state.h"

namespace coppice {

/// Evaluates tree nodes with the draft, over its own paged KV: a node's KV is written once, and
/// kept when the node is accepted.
class DraftRunner final : public TextDraft {
 public:
  DraftRunner(Model& model, KvPool& pool, std::unique_ptr<DraftSampler> sampler);

  struct Setting {
    SamplingParams params;
    ChildDraw draw = ChildDraw::sampled;
    double sharpness = 1.0;  ///< of beliefs (drafting/belief_temperature.h); 0: none
    /// Whether acceptance numbers will judge the children; growth is told of them only then.
    bool uniforms_judge = true;
  };

  /// Computes the KV of all tokens but the last. False: the pool has too few slots (what was
  /// computed stays). `fit` receives the mean probability that the draft gave to the last
  /// tokens of the text, at most 16: next to nothing for a draft that does not know the
  /// language. Unchanged where nothing was missing.
  bool prefill(SequenceState& state, const SamplingParams& params, double& fit);
  /// A step's claim on this runner. Slots that it took and did not keep are freed with it. One at a
  /// time.
  struct EndStep {
    void operator()(DraftRunner* runner) const { runner->end(); }
  };
  using Step = std::unique_ptr<DraftRunner, EndStep>;
  /// Starts a step: the root is the last token of `state`.
  [[nodiscard]] Step begin(SequenceState& state, const StepKey& key, const Setting& setting);
  void evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) override;
  void forget(std::span<const std::int32_t> nodes) override;
  std::optional<DrawnChild> child(const TokenTree& arena, std::int32_t node,
                                  std::int32_t rank) override;
  double expected_share(std::int32_t node) override;
  const DraftSampler& sampler() const { return *sampler_; }
  DraftSampler& sampler() { return *sampler_; }

  /// Keeps the KV of the accepted nodes that the draft evaluated.
  void commit(const TokenTree& tree, std::span<const std::int32_t> path);

  /// Most nodes a step may evaluate beside the root, with the slots that are free now.
  std::int32_t room(const SequenceState& state) const;

  /// Makes every later step draw with a fault: for tests that must fail, and for audits.
  void plant(DrawingFault fault) { sampler_ = sampler_->with(fault); }

  /// Of the step at hand, or of the last prefill.
  std::int64_t passes() const { return passes_; }
  /// Of the step at hand: passes and drawing.
  const StepSeconds& seconds() const { return seconds_; }

 private:
  void end();
  void skip_long_lag();
  void order_rows(const TokenTree& arena, std::span<const std::int32_t> nodes);
  void take(const TokenTree& arena, std::span<const std::int32_t> nodes, const float* logits);
  template <typename Call>
  auto timed(const Call& call);

  Model& model_;
  KvPool& pool_;
  PrefixPass prefix_;
  std::unique_ptr<DraftSampler> sampler_;
  SequenceState* state_ = nullptr;
  Setting setting_;
  KvSlots slots_;                         ///< of evaluated nodes
  std::vector<std::int32_t> slot_index_;  ///< in slots_, by arena node; -1: not evaluated
  std::vector<std::int32_t> evaluated_;   ///< arena nodes with a slot, the root excluded
  // Scratch of evaluate().
  std::vector<std::int32_t> kv_nodes_;   ///< root, evaluated and new nodes, by arena node
  std::vector<std::int32_t> kv_parent_;  ///< by place among these
  std::vector<std::int32_t> place_of_node_;
  TreeOrder order_;                       ///< of these
  std::vector<std::int32_t> new_before_;  ///< by row of this order: new nodes before it
  std::vector<std::int32_t> rows_;        ///< new nodes, in this order
  std::vector<KvSegment> segments_;
  std::vector<std::int32_t> positions_, row_index_;
  std::vector<TokenId> tokens_;
  std::int64_t passes_ = 0;
  StepSeconds seconds_;
};

}  // namespace coppice
