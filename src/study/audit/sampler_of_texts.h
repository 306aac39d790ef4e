// Many short continuations of one prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coppice.h"
#include "models/sequence_state.h"

namespace coppice::study {

/// Counts over a number of continuations.
struct DrawStatistics {
  std::int64_t steps = 0;
  std::int64_t judged = 0;   ///< accepted tokens and bonus tokens
  std::int64_t drafted = 0;  ///< draft tokens
  void add(const Statistics& one);
  double accepted_length() const;
  double tree_size() const;
};

/// Continues a prompt again and again and keeps the prompt's KV in between, so that a
/// continuation costs its steps alone, and has no token that did not come from one: speculation
/// begins with the first.
class TextSampler {
 public:
  /// Throws Error(usage) for a prompt that the engine does not take. `engine` outlives this.
  TextSampler(Engine& engine, std::span<const TokenId> prompt);

  /// One continuation of options.max_new_tokens tokens, end tokens like any other. Valid until the
  /// next call. Throws Error(failure) where context or KV memory ends it early.
  std::span<const TokenId> draw(const GenerateOptions& options, DrawStatistics* statistics);

 private:
  void prefill();

  Engine& engine_;
  SequenceState state_;
  std::int32_t prompt_length_;
  std::vector<TokenId> tokens_;
};

}  // namespace coppice::study
