// The target model as the judge's source of distributions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/tree_order.h"
#include "models/prefix_pass.h"
#include "models/sequence_state.h"
#include "verify/acceptance.h"

namespace coppice {

/// Faults of the target pass, for tests that must notice.
enum class PassFault {
  none,
  rope_by_index,     ///< rows are rotated by their place in the batch, not by their depth
  late_rows_ahead,   ///< a late row is seen by the row before it too
  late_rows_hidden,  ///< a late row is seen by late rows alone, not by root and tree
  logits_by_batch,   ///< logits are taken from rows counted from the pass's first, late or not
};

/// Prefills a text and judges trees over it: one target pass over root and tree in depth-first
/// order, each row at the position its depth gives. Tokens before the root that have no KV yet go
/// first in that pass, as late rows: the root hangs from the last of them as from a chain.
class TargetRunner : public TargetSource {
 public:
  TargetRunner(Model& model, KvPool& pool);

  /// Computes the KV of all tokens but the last. False: the pool has too few slots (what was
  /// computed stays).
  bool prefill(SequenceState& state);
  /// The same, but for the last of those tokens, which pass() can take together with the root, as
  /// late rows. The text then needs no more passes in all than its length asks for, and that last
  /// one is no smaller than their mean. Does not wait.
  bool prefill_to_last_pass(SequenceState& state);
  /// How many tokens before the root pass() would take as late rows.
  static std::int32_t late_rows(const SequenceState& state) {
    return state.length() - 1 - state.target_slots.size();
  }

  /// A pass's claim on this runner. Slots that it took and did not keep are freed with it. One at a
  /// time.
  struct EndPass {
    void operator()(TargetRunner* runner) const { runner->slots_.cut(0); }
  };
  using Pass = std::unique_ptr<TargetRunner, EndPass>;

  /// Work behind the pass, for which it is told the order of the rows before they are queued.
  using Prepare = std::function<PassTail*(const TreeOrder& order)>;

  /// Queues `tree` over `state`, whose late rows and the tree must fit one pass of the model.
  /// Null, with nothing changed, when the pool has too few slots. Logits, and the rows that
  /// `prepare`d work is told of, are the tree's alone. That work may apply the repetition penalty
  /// to the logits; nothing else may change them.
  [[nodiscard]] Pass pass(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
                          const Prepare& prepare = {});
  void wait() { model_.device().synchronize(); }
  const TreeOrder& order() const { return order_; }
  /// Of the last pass.
  std::int32_t late_rows() const { return late_; }

  // Of the last pass, by node; the spans are valid until the next call:
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  /// The distribution at `node` under other parameters than the pass's.
  std::span<const float> distribution_at(std::int32_t node, const SamplingParams& params);
  std::span<const float> logits(std::int32_t node);

  /// Keeps the KV of late rows, root and accepted path. Nothing is moved.
  void commit(std::span<const std::int32_t> path);

  /// Makes every later pass wrong, for tests that must fail.
  void plant(PassFault fault) { fault_ = fault; }

  std::int32_t free_slots() const { return pool_.free_slots(); }
  /// Of putting the last pass's tree in depth-first order.
  double ordering_seconds() const { return ordering_seconds_; }

 private:
  bool extend(SequenceState& state, std::int32_t end);
  void queue(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
             const Prepare& prepare);

  Model& model_;
  KvPool& pool_;
  PrefixPass prefix_;
  SequenceState* state_ = nullptr;
  const TokenTree* tree_ = nullptr;
  SamplingParams params_;
  PassFault fault_ = PassFault::none;
  const float* logits_ = nullptr;
  LogitsScratch scratch_;
  std::vector<float> probs_;
  std::vector<float> downloaded_;  ///< a row of logits, where the host does not see them
  bool penalised_ = false;         ///< the logits hold the repetition penalty already
  TreeOrder order_;
  std::int32_t late_ = 0;
  std::vector<KvSegment> segments_;
  std::vector<std::int32_t> positions_, row_index_;
  std::vector<TokenId> tokens_;
  KvSlots slots_;  ///< by row of the pass, late rows first
  double ordering_seconds_ = 0.0;
};

}  // namespace coppice
