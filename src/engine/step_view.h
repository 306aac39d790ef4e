// What a study sees of a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/random.h"
#include "base/sampling_params.h"
#include "base/step_seconds.h"
#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/draft_sampler.h"
#include "models/sequence_state.h"
#include "verify/target_runner.h"
#include "verify/verifier.h"

namespace coppice {

/// One judged step, before its path is committed, or the pass that brings a sequence's first token
/// with the end of its prompt, which looks like a plain step. Valid during the call that hands it
/// over.
struct StepView {
  const SequenceState& state;  ///< the sequence so far; its last token is the root
  const TokenTree& tree;       ///< the root alone where the step was plain
  const Verdict& verdict;
  TargetRows& target;         ///< holds the pass over `tree`
  const DraftSampler* draft;  ///< D by TokenTree::candidate; null where the step was plain
  const SamplingParams& target_params;
  const SamplingParams& draft_params;
  const StepKey& key;
  std::int64_t draft_passes;
  StepSeconds seconds;
  /// Tokens of the prompt that went through the pass before the root. Above 0 it is no step:
  /// neither statistics nor studies count it as one.
  std::int32_t prefill_rows = 0;
  /// By which the tree grew; null where its values are no learned chances.
  const AcceptanceCalibration* calibration = nullptr;
  /// Tokens that stay: the accepted ones and the bonus token, but none behind an end token that
  /// ends the sequence. (A stop text ends a sequence later, and may take back tokens of earlier
  /// steps.)
  std::int32_t kept = 0;
  bool is_step() const { return prefill_rows == 0; }
  /// The accepted nodes of which that is true.
  std::span<const std::int32_t> kept_path() const {
    return std::span(verdict.path).first(std::min<std::size_t>(kept, verdict.path.size()));
  }
  /// Whether the last of them ends the sequence, so that nothing below it counts as judged.
  bool ends_in_tree() const { return std::cmp_less_equal(kept, verdict.path.size()); }
};

/// Called for every judged step, and for the pass before them, while the engine is locked: it must
/// not use the engine. Its time is left out of a generation's statistics. What it throws ends the
/// generation.
using StepObserver = std::function<void(const StepView&)>;

/// How many tokens of a sequence come with the prefill of its prompt, of which nothing has KV yet,
/// and are therefore no step: the first, where the prompt has tokens before the root.
constexpr std::int32_t tokens_with_prefill(std::size_t prompt_tokens) {
  return prompt_tokens > 1 ? 1 : 0;
}

}  // namespace coppice
