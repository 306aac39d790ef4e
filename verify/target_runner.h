// The target model as the judge's source of distributions.
#pragma once

#include <cstdint>
#include <functional>
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
  rope_by_index,  ///< rows are rotated by their place in the batch, not by their depth
};

/// Prefills a text and judges trees over it: one target pass over root and tree in depth-first
/// order, each row at the position its depth gives.
class TargetRunner : public TargetSource {
 public:
  TargetRunner(Model& model, KvPool& pool);

  /// Computes the KV of all tokens but the last. False: the pool has too few slots (what was
  /// computed stays).
  bool prefill(SequenceState& state);

  /// Work behind the pass, for which it is told the order of the rows before they are queued.
  using Prepare = std::function<PassTail*(const TreeOrder& order)>;

  /// Queues `tree` over `state`, all of whose tokens but the last have KV. False, with nothing
  /// changed, when the pool has too few slots. `prepare`d work may apply the repetition penalty
  /// to the logits; nothing else may change them.
  bool pass(SequenceState& state, const TokenTree& tree, const SamplingParams& params,
            const Prepare& prepare = {});
  void wait() { model_.device().synchronize(); }
  const TreeOrder& order() const { return order_; }

  // Of the last pass, by node; the spans are valid until the next call:
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  /// The distribution at `node` under other parameters than the pass's.
  std::span<const float> distribution_at(std::int32_t node, const SamplingParams& params);
  std::span<const float> logits(std::int32_t node);

  /// Keeps the KV of root and accepted path, frees the rest. Nothing is moved.
  void commit(std::span<const std::int32_t> path);
  /// Frees what the last pass took.
  void abandon();

  /// Makes every later pass wrong, for tests that must fail.
  void plant(PassFault fault) { fault_ = fault; }

  std::int32_t free_slots() const { return pool_.free_slots(); }
  double prefill_seconds() const { return prefill_seconds_; }
  /// Of putting trees in depth-first order.
  double ordering_seconds() const { return ordering_seconds_; }

 private:
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
  std::vector<VisibleKv> visible_;
  std::vector<std::int32_t> positions_, row_index_;
  std::vector<TokenId> tokens_;
  std::vector<KvSlot> write_slots_, freed_;
  double prefill_seconds_ = 0.0;
  double ordering_seconds_ = 0.0;
};

}  // namespace coppice
