// The target model as the judge's source of distributions.
#pragma once

#include <cstdint>
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

  /// Runs `tree` over `state`, all of whose tokens but the last have KV. False, with nothing
  /// changed, when the pool has too few slots.
  bool pass(SequenceState& state, const TokenTree& tree, const SamplingParams& params);

  // Of the last pass, by node:
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  /// The distribution at `node` under other parameters than the pass's.
  std::span<const float> distribution_at(std::int32_t node, const SamplingParams& params);
  std::span<const float> logits(std::int32_t node) const;

  /// Keeps the KV of root and accepted path, frees the rest. Nothing is moved.
  void commit(std::span<const std::int32_t> path);
  /// Frees what the last pass took.
  void abandon();

  /// Makes every later pass wrong, for tests that must fail.
  void plant(PassFault fault) { fault_ = fault; }

  std::int32_t free_slots() const { return pool_.free_slots(); }
  double prefill_seconds() const { return prefill_seconds_; }
  double forward_seconds() const { return forward_seconds_; }

 private:
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
  TreeOrder order_;
  AttentionPlan plan_;
  std::vector<VisibleKv> visible_;
  std::vector<std::int32_t> positions_, row_index_;
  std::vector<TokenId> tokens_;
  std::vector<KvSlot> write_slots_, freed_;
  double prefill_seconds_ = 0.0;
  double forward_seconds_ = 0.0;
};

}  // namespace coppice
