// The draft model as a source of tree nodes.
//
// Three kinds of index, all of them std::int32_t:
//   candidate   a node of the candidate tree, 0 for the root: slot_index_, rows_
//   slot index  a place in DraftStep::slots_
//   row         of a pass, in depth-first order within each text: logit_rows_, new_before_
//
// Invariants:
// (1) slots_ holds the KV of evaluated nodes but the root, whose KV follows that of the tokens
//     before it in SequenceState::draft_slots.
// (2) A node is evaluated once in a step, and after its parent.
// (3) root_before_ >= 0 while the pass of a step's root runs, and only then. A pass that fails
//     gives the slots of its tokens back.
// (4) commit() moves the slots of accepted nodes to the sequence; the others are freed with the
//     step.
// (5) free_steps_ has room for all steps_, so that a step's end cannot fail.
// (6) Of the texts of evaluate(GrowingText) only those that name a step of this runner are
//     evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/step_seconds.h"
#include "base/tree_order.h"
#include "drafting/draft_prefill.h"
#include "drafting/draft_sampler.h"
#include "drafting/grow.h"
#include "models/kv/pass_layout.h"
#include "models/prefix_pass.h"
#include "models/sequence_state.h"

namespace coppice {

class DraftRunner;

/// One text's growing tree in a step, over the draft's own paged KV: a node's KV is written once,
/// and kept when the node is accepted.
class DraftStep final : public TextDraft {
 public:
  explicit DraftStep(DraftRunner& runner);

  using TextDraft::evaluate;
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override;
  void forget(std::span<const std::int32_t> nodes) override;
  void exclude(std::int32_t node, TokenId token) override { sampler_->exclude(node, token); }
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override;
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) override;
  double expected_share(std::int32_t node) override;
  const DraftSampler& sampler() const { return *sampler_; }
  DraftSampler& sampler() { return *sampler_; }

  /// Keeps the KV of the accepted nodes that the draft evaluated.
  void commit(const TokenTree& tree, std::span<const std::int32_t> path);

  /// Counts the passes in which this text had nodes.
  std::int64_t passes() const { return passes_; }
  /// Returns the time of these passes, by the share of their rows, and of drawing.
  const StepSeconds& seconds() const { return seconds_; }

 private:
  friend class DraftRunner;
  template <typename Call>
  auto timed(const Call& call);

  DraftRunner& runner_;
  std::unique_ptr<DraftSampler> sampler_;
  SequenceState* state_ = nullptr;
  bool uniforms_judge_ = true;
  std::int32_t root_before_ = -1;         ///< own KV tokens before the root's pass, while it runs
  KvSlots slots_;                         ///< of evaluated nodes
  std::vector<std::int32_t> slot_index_;  ///< in slots_, by candidate; -1: not evaluated
  std::vector<std::int32_t> rows_;        ///< nodes of the pass at hand, in depth-first order
  std::int64_t passes_ = 0;
  StepSeconds seconds_;
};

/// Evaluates nodes of growing trees with the draft: one pass for those of one text, or of several.
class DraftRunner final : public DraftPasses {
 public:
  DraftRunner(Model& model, KvPool& pool, std::unique_ptr<DraftSampling> sampling);

  struct Setting {
    SamplingParams params;
    AcceptanceRule draw = AcceptanceRule::rejection;
    double inverse_temperature = 1.0;  ///< of beliefs (drafting/belief_temperature.h); 0: none
    /// Whether acceptance numbers will judge the children; growth is told of them only then.
    bool uniforms_judge = true;
  };

  /// Makes one pass over prompts (drafting/draft_prefill.h). False: none was needed, or possible.
  bool prefill(std::span<DraftPrompt> prompts);
  /// All passes of one text. False: the pool has too few slots.
  bool prefill(DraftPrompt& prompt);

  /// A text's step. Slots that it took and did not keep are freed with it.
  struct EndStep {
    void operator()(DraftStep* step) const;
  };
  using Step = std::unique_ptr<DraftStep, EndStep>;
  /// Starts a step: the root is the last token of `state`. Texts have steps side by side, each one
  /// at a time.
  [[nodiscard]] Step begin(SequenceState& state, const StepKey& key, const Setting& setting);

  /// Nodes of a step's tree, whose children are to be drawn. Their parents were evaluated before.
  struct StepNodes {
    DraftStep* step = nullptr;
    const TokenTree* candidates = nullptr;
    std::span<const std::int32_t> nodes;
  };
  /// Evaluates nodes of different steps in as few passes as they fit. Throws Error(failure) where
  /// the pool has too few slots; the steps then have to end.
  void evaluate(std::span<const StepNodes> frontiers);
  /// The same of texts whose sources are steps of this runner.
  void evaluate(std::span<const GrowingText> texts) override;

  /// Tokens that a step's first pass catches up with.
  static std::int32_t lag(const SequenceState& state);
  /// After a long stretch without the draft only its end is caught up with.
  static void skip_long_lag(SequenceState& state);
  /// Tokens that are missing then.
  static std::int32_t after_long_lag(const SequenceState& state);
  /// Most nodes that each of `texts` steps may evaluate beside the root, with the slots that are
  /// free now; `lag`: of all together.
  std::int32_t room(std::int32_t lag, std::int32_t texts) const;

  /// Makes every later step draw with a fault: for tests that must fail, and for audits.
  void plant(DrawingFault fault);

  /// Run so far.
  std::int64_t passes() const { return passes_; }

 private:
  friend class DraftStep;
  struct RootGuard;

  void end(DraftStep* step);
  static std::int32_t missing(const SequenceState& state);
  void catch_up(DraftStep& step);
  void take_slots(const StepNodes& frontier);
  void queue_root(const StepNodes& frontier);
  void queue_nodes(const StepNodes& frontier);
  void order_rows(DraftStep& step, const TokenTree& candidates,
                  std::span<const std::int32_t> nodes);
  std::size_t run_pass(std::span<const StepNodes> frontiers);

  Model& model_;
  KvPool& pool_;
  PrefixPass prefix_;
  std::unique_ptr<DraftSampling> sampling_;
  DraftPrefill prefill_;
  std::vector<std::unique_ptr<DraftStep>> steps_;  ///< all that were ever begun side by side
  std::vector<DraftStep*> free_steps_;             ///< of these
  std::int64_t passes_ = 0;
  // Scratch of evaluate().
  TreeOrder order_;                       ///< of root, evaluated and new nodes
  std::vector<std::int32_t> new_before_;  ///< by row of this order: new nodes before it
  std::vector<StepNodes> frontiers_;
  std::vector<StepNodes> sampled_;    ///< by text of the pass, in the order of its rows
  std::vector<double> rows_of_text_;  ///< by text of the pass
  PassLayout layout_;
  std::vector<KvSegment> segments_;
  std::vector<KvSlot> write_slots_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<TokenId> tokens_;
};

}  // namespace coppice
