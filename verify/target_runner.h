// The target model as the judge's source of distributions.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/tree_order.h"
#include "models/kv/pass_layout.h"
#include "models/prefix_pass.h"
#include "models/sequence_state.h"
#include "verify/verifier.h"

namespace coppice {

class TargetRunner;

/// What one text has in a pass of the target.
class TargetRows final : public TargetSource {
 public:
  explicit TargetRows(TargetRunner& runner);

  /// Returns the order of the tree's rows.
  const TreeOrder& order() const { return order_; }
  /// Rows of tokens before the root, which stand before the tree's.
  std::int32_t prefill_rows() const { return prefill_rows_; }
  /// Place of the tree's first row among the pass's logits.
  std::int32_t first_logits() const { return first_logits_; }
  SequenceState& state() const { return *state_; }
  const SamplingParams& params() const { return params_; }

  // By node; the spans are valid until the next call, of any text:
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  /// The distribution at `node` under other parameters than the pass's.
  std::span<const float> distribution_at(std::int32_t node, const SamplingParams& params);
  std::span<const float> logits(std::int32_t node);

  /// Keeps the KV of prefill rows, root and accepted path. Nothing is moved.
  void commit(std::span<const std::int32_t> path);

 private:
  friend class TargetRunner;
  std::span<const float> ruled_logits(std::int32_t node);

  TargetRunner& runner_;
  SequenceState* state_ = nullptr;
  const TokenTree* tree_ = nullptr;  ///< null: prefill rows alone
  SamplingParams params_;
  TreeOrder order_;
  std::int32_t prefill_rows_ = 0, first_logits_ = 0;
  std::size_t own_segment_ = 0;          ///< of what it alone has from former passes
  KvSlots slots_;                        ///< by row, prefill rows first
  std::vector<std::int32_t> positions_;  ///< likewise
};

/// The rows of a pass that is about to be computed.
struct PassRows {
  /// A text, in the order of rows.
  struct Text {
    const SequenceState* state;
    const TokenTree* tree;        ///< or null
    std::int32_t first, prefill;  ///< its first row, and how many before the tree's
    std::int32_t* first_logits;
    std::size_t own_segment;  ///< of `segments`; its rows' follow, one each
    std::int32_t nodes() const { return tree == nullptr ? 0 : tree->nodes(); }
    std::int32_t end() const { return first + prefill + nodes(); }
  };
  std::vector<Text> texts;
  std::vector<KvSegment>& segments;
  std::vector<std::int32_t>&positions, &logit_rows;
};
using ChangePass = std::function<void(const PassRows&)>;

/// Prefills texts and judges trees over them. A pass has the rows of one text or of several, text
/// after text, side by side those that share (models/kv/pass_layout.h): root and tree in
/// depth-first order, each row at the position its depth gives. Tokens before the root that have no
/// KV yet go first, as prefill rows: the root hangs from the last of them as from a chain. Rows see
/// nothing that is other texts' alone.
class TargetRunner {
 public:
  TargetRunner(Model& model, KvPool& pool);

  /// Computes the KV of all tokens but the last. False: the pool has too few slots (what was
  /// computed stays).
  bool prefill(SequenceState& state);
  /// The same, but for the last of those tokens, which pass() can take together with the root, as
  /// prefill rows. The text then needs no more passes in all than its length asks for, and that
  /// last one is no smaller than their mean. Does not wait.
  bool prefill_to_last_pass(SequenceState& state);
  /// How many tokens before the root pass() would take as prefill rows.
  static std::int32_t prefill_rows(const SequenceState& state) {
    return state.length() - 1 - state.target_kv();
  }

  /// What a text brings to a pass. Both outlive it.
  struct Text {
    SequenceState* state = nullptr;
    /// Null: only the first `prefill_rows` of the tokens without KV, as a part of a prefill, and no
    /// logits.
    const TokenTree* tree = nullptr;
    SamplingParams params = {};
    std::int32_t prefill_rows = 0;  ///< where there is no tree

    std::int32_t rows() const {
      return tree == nullptr ? prefill_rows : TargetRunner::prefill_rows(*state) + tree->nodes();
    }
  };

  /// A pass's claim on this runner. Slots that it took and did not keep are freed with it. One at a
  /// time.
  struct EndPass {
    void operator()(TargetRunner* runner) const { runner->end(); }
  };
  using Pass = std::unique_ptr<TargetRunner, EndPass>;

  /// Work behind the pass, which can ask for the texts' orders before the rows are queued.
  using Prepare = std::function<PassEpilogue*(const TargetRunner& pass)>;

  /// Queues a pass, whose rows must fit one of the model. Null, with nothing changed, when the pool
  /// has too few slots. `prepare`d work applies masks, bias and penalties to the logits;
  /// nothing else may change them.
  [[nodiscard]] Pass pass(std::span<const Text> texts, const Prepare& prepare = {});
  /// The same of one text.
  [[nodiscard]] Pass pass(SequenceState& state, const TokenTree& tree,
                          const SamplingParams& params) {
    const Text text{&state, &tree, params};
    return pass({&text, 1});
  }
  void wait() { model_.device().synchronize(); }
  /// Returns a text of the pass, in the order given.
  TargetRows& text(std::size_t index = 0) { return texts_[index]; }
  const TargetRows& text(std::size_t index = 0) const { return texts_[index]; }

  /// The texts in the order of their rows, and of their logits.
  std::span<const std::int32_t> order() const { return layout_.order(); }

  /// Whether later passes read what texts share once for each of them.
  void read_by_text(bool by_text) { layout_.by_text = by_text; }
  bool reads_by_text() const { return layout_.by_text; }
  /// How later passes divide their attention.
  void divide(AttentionDivision division) { division_ = division; }

  /// Has `change` called with the rows of every later pass, which it may make wrong: planted
  /// faults.
  void change_passes(ChangePass change) { change_ = std::move(change); }

  std::int32_t free_slots() const { return pool_.free_slots(); }
  /// Returns the time of putting the last pass's trees in depth-first order.
  double ordering_seconds() const { return ordering_seconds_; }

  /// KV tokens of former passes that passes have read so far.
  struct TokensRead {
    std::int64_t by_text = 0;  ///< if every text read its own
    std::int64_t by_tree = 0;  ///< what texts share read once for all of a pass
  };
  std::int64_t passes() const { return passes_; }
  TokensRead tokens_read() const { return {by_text_.load(), by_tree_.load()}; }

 private:
  friend class TargetRows;

  bool extend(SequenceState& state, std::int32_t end);
  bool take_slots(TargetRows& text);
  void queue(TargetRows& text);
  PassRows pass_rows();
  void end();

  Model& model_;
  KvPool& pool_;
  PrefixPass prefix_;
  ChangePass change_;
  std::deque<TargetRows> texts_;  ///< keep their memory; a pass has the first `count_`
  std::size_t count_ = 0;
  bool changed_ = false;  ///< the pass's logits hold masks, bias and penalties already
  const float* logits_ = nullptr;
  LogitsScratch scratch_;
  std::vector<float> probs_;
  std::vector<float> downloaded_;  ///< a row of logits, where the host does not see them
  PassLayout layout_;
  AttentionDivision division_ = AttentionDivision::flatten;
  std::vector<KvSegment> segments_;
  std::vector<KvSlot> write_slots_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<TokenId> tokens_;
  std::atomic<std::int64_t> by_text_ = 0, by_tree_ = 0;
  std::int64_t passes_ = 0;
  double ordering_seconds_ = 0.0;
};

}  // namespace coppice
