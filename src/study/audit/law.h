// The target's own law of the next token, by plain passes, and the law of short texts against it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "coppice.h"
#include "engine/access.h"
#include "kernels/device.h"
#include "models/config.h"
#include "models/sequence_state.h"
#include "study/audit/audit.h"
#include "study/audit/goodness_of_fit.h"

namespace coppice::study {

/// One plain pass over a text.
struct PlainPass {
  /// [vocab] log-probabilities at temperature 1 after the repetition penalty, no filter.
  std::vector<double> logprob;
  std::vector<float> probability;  ///< [vocab] as sampled from, filters included
  /// What rounding may make of a difference of two logprobs (logit_rounding).
  double rounding = 0.0;
};

/// Takes over the engine's observer for the call. Throws Error(failure) where the text has no room.
PlainPass plain_pass(Engine& engine, std::span<const TokenId> text,
                     const GenerateOptions& sampling);

/// Laws under the temperature, filters and penalty of one request, each computed once.
class TargetLaws {
 public:
  TargetLaws(Engine& engine, const GenerateOptions& sampling);
  /// Valid as long as this object.
  const TokenLaw& after(std::span<const TokenId> text);
  /// nullptr where it was never asked for.
  const TokenLaw* find(std::span<const TokenId> text) const;
  /// Largest PlainPass::rounding so far.
  double rounding() const { return rounding_; }

 private:
  Engine& engine_;
  GenerateOptions sampling_;
  std::map<std::vector<TokenId>, TokenLaw> laws_;
  double rounding_ = 0.0;
};

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

  EngineAccess engine_;
  SequenceState state_;
  std::int32_t prompt_length_;
  std::vector<TokenId> tokens_;
};

/// Samples of one setting, added to batch by batch and tested at any time.
class LawSampling {
 public:
  /// `engine` and `laws`, which are under the setting's temperature and filters, outlive this.
  LawSampling(Engine& engine, TargetLaws& laws, const std::vector<std::vector<TokenId>>& prompts,
              const GenerateOptions& options);

  /// `count` more texts, the prompts in turn. `tick` is called after every text.
  void draw(std::int64_t count, const std::function<void()>& tick);
  /// A test of single tokens and one of their ranks for each of the first tokens. Contexts are the
  /// prompts, and behind them what many samples begin with. Events of all samples so far;
  /// smallest_bias at `significance`.
  std::vector<EventFinding> test(double significance);
  /// Compares laws at the nodes that a few texts go through with plain passes'.
  void check_passes(LawFinding& finding);

  std::int64_t samples() const { return samples_; }
  const DrawStatistics& statistics() const { return statistics_; }

  static constexpr std::size_t tests = 2 * static_cast<std::size_t>(tested_tokens);

 private:
  Engine& engine_;
  TargetLaws& laws_;
  const std::vector<std::vector<TokenId>>& prompts_;
  GenerateOptions options_;
  std::vector<std::unique_ptr<TextSampler>> samplers_;  ///< by prompt
  std::vector<std::vector<TokenId>> drawn_;             ///< by prompt, sampled_tokens a text
  std::int64_t samples_ = 0;
  DrawStatistics statistics_;
};

/// Place of the smallest p-value.
std::size_t most_suspicious(const std::vector<EventFinding>& events);

}  // namespace coppice::study
