// The law of short texts against the target's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "study/audit/audit.h"
#include "study/audit/sampler_of_texts.h"
#include "study/audit/target_laws.h"

namespace coppice::study {

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
