// Small models by table, and speculative generation over them: the whole step loop (grow, judge,
// commit) without arithmetic of networks, so that the law of the output is known exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/sampling_params.h"
#include "drafting/child_drawer.h"
#include "drafting/grow.h"
#include "verify/verifier.h"

namespace coppice::testing {

/// Logits of the next token by the last two tokens.
struct TabularModel {
  std::int32_t vocab = 0;
  std::vector<float> logits;  ///< [previous, last, token]

  /// The processed distributions, laid out as logits.
  std::vector<float> distributions(const SamplingParams& params) const;
  /// The same by definition, in double.
  std::vector<double> exact(const SamplingParams& params) const;
};

struct ModelPair {
  std::string name;
  TabularModel target, draft;
};

/// Random pairs and adversarial ones: disjoint support, one-hot target or draft, uniform draft,
/// nearly equal, equal but for rounding, draft 0 where the target is not, target 0 where the
/// draft is not.
std::vector<ModelPair> model_pairs();

/// Law of the next three tokens after (0, 0) under the target: [first, second, third].
std::vector<double> law_of_three(const TabularModel& target, const SamplingParams& params);

/// What is decided before each step, from past steps alone.
using LimitsRule = std::function<GrowthLimits(std::int32_t step, std::int32_t last_accepted)>;

/// The same limits in every step.
inline LimitsRule fixed(std::int32_t size, std::int32_t depth = 1 << 20, double min_value = 0.0) {
  return [=](std::int32_t, std::int32_t) { return GrowthLimits{size, depth, min_value}; };
}

struct Setting {
  SamplingParams target_params{1.0};
  SamplingParams draft_params{1.0};
  AcceptanceRule draw = AcceptanceRule::rejection;
  LimitsRule limits;
};

/// Generates texts with one pair and one setting.
class TabularGenerator {
 public:
  TabularGenerator(const ModelPair& pair, const Setting& setting);
  ~TabularGenerator();
  NoiseCache& noise();

  /// `length` tokens of text number `sequence`, by speculation.
  std::vector<TokenId> generate(DraftPolicy& policy, Verifier& rule, std::uint64_t seed,
                                std::uint64_t sequence, std::int32_t length);
  /// Counts the first three tokens of `texts` texts, [first, second, third].
  std::vector<std::int64_t> count_threes(DraftPolicy& policy, Verifier& rule, std::uint64_t seed,
                                         std::int64_t texts);
  /// Tokens judged good per step so far, bonus included.
  double accepted_length() const;

 private:
  class Source;
  class Target;
  std::int32_t vocab_;
  Setting setting_;
  std::vector<float> target_rows_, draft_rows_;
  std::unique_ptr<NoiseCache> noise_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Target> target_;
  TokenTree tree_;
  Verdict verdict_;
  std::int64_t steps_ = 0, tokens_ = 0;
};

}  // namespace coppice::testing
