// Kernels of sampling over logits that stay on the GPU: distributions of rows, children drawn
// from them, judging of a tree. Definitions are the host's: kernels/logits.h, kernels/noise.h,
// drafting/child_drawer.h, verify/verifier.h.
//
// All inputs but the logits lie at fixed addresses and are read when a kernel runs, the number
// of rows among them (BatchHead::rows): `rows` of a launch may exceed it, further rows do
// nothing. So a recorded launch serves every later batch. Only the noise decides what a launch
// does, never what is launched.
//
// Limits: 2 <= vocabulary <= most_vocab. Pointers of the GPU's memory; rows of logits may have
// any stride and any alignment of a float.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/pass/completion.h"
#include "kernels/device_sampler.h"
#include "kernels/power_sums.h"

namespace coppice::cuda {

inline constexpr std::int64_t most_vocab = 320 * 1024;

/// A row is drawn from in slices, each by a block of its own.
inline constexpr std::int32_t slice_tokens = 8192;
inline std::int32_t slices_of(std::int32_t vocab) {
  return (vocab + slice_tokens - 1) / slice_tokens;
}

/// What all rows of a batch share.
struct BatchHead {
  std::int32_t rows = 0;
  std::int32_t texts = 0;
  std::uint32_t number = 0;  ///< of the batch, told to the host with its results
  std::uint32_t unused = 0;
};

/// What a text's rows share.
struct SamplingSetting {
  StepKey key;
  double top_p = 1.0;                ///< 1 or more: off
  float inverse_temperature = 0.0f;  ///< 0: all mass on the argmax
  float least_weight = 0.0f;         ///< min-p, as a part of the largest weight; 0: off
  float penalty = 1.0f;
  float frequency = 0.0f, presence = 0.0f;  ///< penalties of the new text's tokens
  float belief_inverse_temperature = 0.0f;  ///< power of the moments of scores; 0: none are wanted
  std::int32_t top_k = 0;
  std::int32_t penalised = 0;  ///< whether text_bits and path_tokens are to be looked at
  AcceptanceRule rule = AcceptanceRule::rejection;
  DeviceFault fault = DeviceFault::none;  ///< looked at by launches that are `faulty`
  std::int32_t text = 0;                  ///< whose text_bits these are
  std::int32_t root = 0;                  ///< judging: the first row of its tree
  /// Tokens with terms of their own, from this place of PenaltyView::terms on.
  std::int32_t first_term = 0, terms = 0;
  std::int32_t counts_path = 0;  ///< whether tokens of a row's path have terms, too
  std::int32_t unused = 0;
};

/// What turns a logit of a row into its probability: token t with logit x weighs
///   w = exp((x - max) * inverse_temperature)
/// and has probability w * inverse_sum if it comes no later than (cut_key, cut_id) by falling
/// logit and rising id, and w >= least_weight; else 0. row_distribution.cuh holds the function.
struct RowStatistics {
  float max = 0.0f;
  float inverse_temperature = 0.0f;
  float inverse_sum = 0.0f;
  float least_weight = 0.0f;
  std::uint32_t cut_key = 0;
  std::int32_t cut_id = 0;
  std::int32_t argmax = -1;  ///< -1: the row has no finite logit
  std::int32_t second = -1;  ///< the most probable token but argmax; for a planted fault only
};

/// What is added to a token's logit, before the repetition penalty, and how often the new text
/// holds the token.
struct TokenTerm {
  std::int32_t token = 0, count = 0;
  float bias = 0.0f;
};

/// What changes logits: tokens in the text, and by row those of its tree path.
struct PenaltyView {
  const std::uint32_t* text_bits = nullptr;  ///< [texts, text_words] one bit per token
  std::int32_t text_words = 0;
  const std::int32_t* path_tokens = nullptr;
  const TokenTerm* terms = nullptr;  ///< of a text after the other's, by rising token
};

/// Which tokens may follow: [masks, words] one bit per token.
struct MaskView {
  const std::uint32_t* bits = nullptr;
  std::int32_t words = 0;
};

struct DrawInput {
  std::uint64_t node_key = 0;
  std::int32_t store = 0;
  std::int32_t depth = 0;
  std::int32_t path_begin = 0;  ///< of path_tokens
  std::int32_t path_count = 0;
  std::int32_t after = -1;  ///< only children that come after this one; -1: all. Or see score_token
  std::int32_t text = 0;
  std::int32_t mask = -1;  ///< of MaskView; -1: none
  std::int32_t unused = 0;
};

struct DrawView {
  const BatchHead* head = nullptr;
  const SamplingSetting* settings = nullptr;  ///< [text capacity]
  const DrawInput* rows = nullptr;            ///< [row capacity]
  PenaltyView penalty;
  MaskView masks;
};

/// D of the rows drawn from, until their tree has been judged.
struct StoreView {
  float* logits = nullptr;              ///< [store rows, stride], processed and cleaned
  RowStatistics* statistics = nullptr;  ///< [store rows]
  std::int64_t stride = 0;              ///< a multiple of 4
  std::int32_t vocab = 0;               ///< tokens that both models know; others have D = 0
};

/// Children that a row yields at a time: a warp of them.
inline constexpr int drawn_children = 32;

/// Over a row's tokens, or a slice's. (Without initialisers: it lies in shared memory, too.)
struct RowSums {
  PowerSums scores;  ///< where the setting has an inverse temperature of beliefs
  float squares;     ///< of the probabilities, where children are sampled
};

/// The children of one row, -1 after the last.
struct DrawnRow {
  DeviceChild children[drawn_children];
  std::int32_t argmax = -1;  ///< -1: the row has no finite logit
  std::int32_t unused = 0;
  RowSums sums = {};  ///< over the whole row
  float scores[drawn_children] =
      {};  ///< of the children, where the setting has an inverse temperature of beliefs
};

/// What slices leave for whoever merges them.
struct SliceView {
  std::uint64_t* best = nullptr;  ///< [rows, slices_of(vocab), drawn_children]
  RowSums* sums = nullptr;        ///< [rows, slices_of(vocab)]
};

/// logits [rows, stride] f32, of which the first store.vocab columns count, to the store's rows.
/// Terms are added in place.
void process_draft_rows(const DrawView& draw, float* logits, std::int64_t stride,
                        const StoreView& store, std::int32_t rows, bool faulty,
                        cudaStream_t stream);

/// Children of processed rows, to page-locked memory. parts: scratch.
void draw_children(const DrawView& draw, const StoreView& store, const SliceView& parts,
                   DrawnRow* drawn, const CompletionView& completion, std::int32_t rows,
                   bool faulty, cudaStream_t stream);

/// Score of token `after` of the first row, to its first child's place.
void score_token(const DrawView& draw, const StoreView& store, DrawnRow* drawn,
                 const CompletionView& completion, cudaStream_t stream);

struct JudgeInput {
  std::uint64_t node_key = 0;
  std::int32_t store = -1;
  std::int32_t depth = 0;
  std::int32_t path_begin = 0;
  std::int32_t path_count = 0;
  std::int32_t first_child = 0;  ///< of child_row and child_token
  std::int32_t children = 0;
  std::int32_t text = 0;
  std::int32_t drawn_from = 0;  ///< children of D are among them
  std::int32_t mask = -1;       ///< of MaskView; -1: none
  std::int32_t unused = 0;
};

struct JudgeView {
  const BatchHead* head = nullptr;
  const SamplingSetting* settings = nullptr;  ///< [text capacity]
  const JudgeInput* rows = nullptr;           ///< [row capacity]
  const std::int32_t* child_row = nullptr;    ///< [row capacity] a row's children by rank
  /// [row capacity] likewise; of those from no distribution, ~token, where rejection judges.
  const std::int32_t* child_token = nullptr;
  PenaltyView penalty;
  MaskView masks;
};

/// Target rows [rows, vocab] f32. All but `logits` is written by the kernels.
struct TargetView {
  float* logits = nullptr;              ///< terms, penalty and masks are applied in place
  RowStatistics* statistics = nullptr;  ///< [rows]
  std::uint64_t* slice_best = nullptr;  ///< [rows, slices_of(vocab)]
  std::int32_t vocab = 0;
};

/// What follows a row's node once it is reached: a child, or else a token.
struct RowOutcome {
  std::int32_t child = -1;
  TokenId bonus = -1;  ///< no_distribution: the row has no finite logit
};
inline constexpr TokenId no_distribution = -2;

/// What a tree comes to.
struct TreeVerdict {
  TokenId bonus = -1;  ///< no_distribution: the last row reached has no finite logit
  std::int32_t accepted = 0;
};

struct VerdictView {
  RowOutcome* outcomes = nullptr;  ///< [rows]
  CompletionView completion;
  // In page-locked memory:
  TreeVerdict* trees = nullptr;           ///< [text capacity]
  std::int32_t* accepted_rows = nullptr;  ///< [row capacity] a tree's from its root's place on
};

void process_target_rows(const JudgeView& judge, const TargetView& target, std::int32_t rows,
                         cudaStream_t stream);
/// The token that coupled noise takes of each row, by slices; nothing under other rules.
void couple_target_rows(const JudgeView& judge, const TargetView& target, std::int32_t rows,
                        cudaStream_t stream);
void judge_tree(const JudgeView& judge, const TargetView& target, const StoreView& store,
                const VerdictView& verdict, std::int32_t rows, bool faulty, cudaStream_t stream);

struct ScoreView {
  const BatchHead* head = nullptr;
  const SamplingSetting* setting = nullptr;
  const std::int32_t* next = nullptr;  ///< [row capacity]
};

/// scores[r]: probability of next[r] under row r of logits [rows, stride], of which `vocab`
/// columns count; -1 where the row has no finite logit.
void score_rows(const ScoreView& score, const float* logits, std::int64_t stride,
                std::int32_t vocab, float* scores, std::int32_t rows, cudaStream_t stream);

}  // namespace coppice::cuda
