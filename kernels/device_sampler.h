// Sampling on a device whose logits stay there: drawing children from draft rows, judging trees
// by target rows, and probabilities of given tokens.
//
// What a row's distribution is, how children are drawn from it and how a tree is judged is the
// host's definition (kernels/logits.h, drafting/child_drawer.h, verify/): same filters in the
// same order, same ties, same keys of random numbers for accepting, residual and coupled noise.
// Only sampled children are drawn differently: by the largest D(y) / E(y) with exponential noise
// E keyed by (seed, sequence, step, node, token) (Gumbel top-k, which is sampling without
// replacement in order), so that one pass over a row yields all of its children.
//
// Each of the three jobs comes in three parts: stage_*() takes inputs over from the host, a
// queueing part that runs on the device and may be recorded (Pass::run), mostly as the epilogue of
// a pass, collect_*() waits for it. No distribution is written to memory but D's logits, which
// judging needs where a child was rejected.
//
// A batch has the rows of one text or of several: each text has its parameters, noise, key and
// penalised tokens, and each tree its verdict.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/draft_evidence.h"
#include "base/random.h"
#include "base/sampling_params.h"
#include "base/token_rules.h"
#include "base/tree_order.h"
#include "base/types.h"
#include "kernels/logits.h"
#include "kernels/pass_epilogue.h"

namespace coppice {

/// Capacities of a DeviceSampler.
struct SamplerLimits {
  std::int64_t target_vocab = 0;
  std::int64_t draft_vocab = 0;  ///< 0: no draft
  std::int32_t rows = 0;         ///< most rows drawn from, or judged, at a time
  std::int32_t store_rows = 0;   ///< rows of draft distributions kept until the tree is judged
  std::int32_t texts = 1;        ///< most texts of a batch
};

struct DeviceChild {
  TokenId token = -1;
  float prob = 0.0f;  ///< D(token) before any sibling was drawn
};

/// A row's children in drawn order, or the next ones of them.
struct DrawnChildren {
  std::span<const DeviceChild> list;
  bool exhausted = false;  ///< beyond these D has no mass
  /// Sum over the whole row's probabilities, where children are sampled; below 0 elsewhere.
  double squares = -1.0;
  // Where the batch has an inverse temperature of beliefs:
  std::span<const float> scores;  ///< D times noise of the listed children
  PowerMoments moments;           ///< of the whole row's scores, whatever of them is listed
};

/// Faults of the device's sampling, for tests that must notice.
enum class DeviceFault : std::int32_t {
  none,
  same_depth_shares_noise,      ///< drawing noise by depth instead of node
  retry_shares_noise,           ///< drawing noise by absolute position, without step and node
  declared_is_not_sampled,      ///< children only from the two most probable tokens
  siblings_share_uniform,       ///< acceptance noise without the sibling rank
  residual_is_target,           ///< bonus from T where children were rejected
  accept_without_residual,      ///< every sibling judged by T / D
  draft_mass_not_renormalised,  ///< D' keeps the mass of rejected siblings
  target_softmax_of_residual,   ///< exp(R) normalised instead of R
  certain_stay,                 ///< refused children from no distribution stay in R
  sums_miss_a_slice,            ///< moments of scores, and squares, without the row's first part
  // These show where a batch has several texts, of which the next one's is taken:
  neighbours_parameters,  ///< sampling parameters
  neighbours_counts,      ///< tokens of the text that the penalty concerns
  neighbours_noise,       ///< the key of all noise
  verdict_walks_on,       ///< a root without an accepted child is followed by the next tree's
};

/// What of a text changes logits: tokens in the text so far, the tokens of tree nodes (for drawing
/// of the candidate tree, for judging of the tree), and what is added to tokens' logits. A row's
/// node counts with all of its ancestors but the root (parent -1), which is in the text.
struct PenaltyText {
  const TokenCounts* counts = nullptr;  ///< of the text
  std::span<const TokenId> node_token;
  std::span<const std::int32_t> node_parent;
  const TokenCounts* new_counts = nullptr;  ///< of the new text; null: no penalty counts them
  std::span<const TokenBias> bias = {};     ///< in the order of tokens
};

/// How a text's children are drawn.
struct DrawText {
  StepKey key;
  SamplingParams params;  ///< temperature above 0
  AcceptanceRule rule = AcceptanceRule::rejection;
  double belief_inverse_temperature =
      0.0;  ///< power of DrawnChildren::moments; 0: no scores are wanted
  const PenaltyText* penalty = nullptr;  ///< needed where params.penalises(), and for a bias
};

struct DrawRow {
  std::int32_t store = 0;      ///< row of the store that keeps D for judging and more()
  std::int32_t node = 0;       ///< index into PenaltyText, where there is one
  std::int32_t depth = 0;      ///< edges below the root
  std::uint64_t node_key = 0;  ///< base/random.h
  std::int32_t text = 0;
  /// Tokens that may follow; null: all. Looked at by stage_draw() alone. Where D knows none of them
  /// the row has no children.
  std::shared_ptr<const TokenMask> mask = {};
};

struct DrawBatch {
  std::span<const DrawText> texts;
  std::span<const DrawRow> rows;  ///< by logit row
};

/// A text's tree, and how it is judged.
struct JudgeText {
  StepKey key;
  SamplingParams params;
  AcceptanceRule rule = AcceptanceRule::rejection;  ///< greedy at temperature 0
  const PenaltyText* penalty = nullptr;             ///< with the nodes of the tree
  const TokenTree* tree = nullptr;
  const TreeOrder* order = nullptr;      ///< of its rows
  const DraftEvidence* draft = nullptr;  ///< where D of its nodes lies; null: none was drawn from
};

struct DeviceVerdict {
  /// Accepted rows of the pass's logits, root excluded, in order. A tree's own rows (TreeOrder) are
  /// counted from its root's.
  std::vector<std::int32_t> rows;
  TokenId bonus = -1;
};

/// Made by Device::make_sampler for one target and at most one draft. Not for several threads at
/// a time. Errors: Error(failure) for a row without a finite logit, from collect_*().
class DeviceSampler {
 public:
  /// `draft_vocab`: columns of the draft's logits.
  explicit DeviceSampler(std::int64_t draft_vocab);
  virtual ~DeviceSampler() = default;

  /// draw() or score() behind a pass of the draft, judge() behind one of the target.
  PassEpilogue& draw_epilogue() { return draw_epilogue_; }
  PassEpilogue& score_epilogue() { return score_epilogue_; }
  PassEpilogue& judge_epilogue() { return judge_epilogue_; }

  virtual void stage_draw(const DrawBatch& batch) = 0;
  /// logits [rows, stride] f32, which it may change; `rows` may exceed the rows staged.
  virtual void draw(float* logits, std::int64_t stride, std::int32_t rows) = 0;
  /// Waits. out[r]: the row's first children, valid until the next stage_draw().
  virtual void collect_draw(std::span<DrawnChildren> out) = 0;
  /// The next children after `last` of a row drawn from in this step, likewise. Waits. Valid
  /// until the next call.
  virtual DrawnChildren more(const DrawText& text, const DrawRow& row, TokenId last) = 0;
  /// D times noise of any token under a row drawn from in this step; 0 for one that D excludes, or
  /// that only one of the models knows. Waits.
  virtual float score_of(const DrawText& text, const DrawRow& row, TokenId token) = 0;

  /// Rows of the target's pass are those of these trees, one after the other. All of it outlives
  /// the call alone.
  virtual void stage_judge(std::span<const JudgeText> texts) = 0;
  /// logits [rows, target vocab] f32; in place, bias, penalties and masks are applied to them.
  virtual void judge(float* logits, std::int32_t rows) = 0;
  /// By tree.
  virtual void collect_verdicts(std::span<DeviceVerdict> out) = 0;

  /// Probability of next[r] under row r (of the draft) without bias and penalties.
  virtual void stage_score(std::span<const TokenId> next, const SamplingParams& params) = 0;
  virtual void score(const float* logits, std::int64_t stride, std::int32_t rows) = 0;
  virtual void collect_scores(std::span<float> out) = 0;

  /// Makes every later draw and verdict wrong, for tests that must fail. Virtual, so that it runs
  /// where the sampler was made: a module numbers its epilogues with a counter of its own, and a
  /// number of another one's could be that of an epilogue whose recordings are still there.
  virtual void plant(DeviceFault fault);

 protected:
  DeviceFault fault() const { return fault_; }
  bool faulty() const { return fault_ != DeviceFault::none; }

 private:
  enum class Job { draw, score, judge };
  class Epilogue final : public PassEpilogue {
   public:
    Epilogue(DeviceSampler& sampler, Job job) : sampler_(sampler), job_(job) {}
    void queue(float* logits, std::int32_t rows) override;
    using PassEpilogue::renew;

   private:
    DeviceSampler& sampler_;
    const Job job_;
  };

  const std::int64_t draft_vocab_;
  DeviceFault fault_ = DeviceFault::none;
  Epilogue draw_epilogue_{*this, Job::draw}, score_epilogue_{*this, Job::score},
      judge_epilogue_{*this, Job::judge};
};

}  // namespace coppice
