// Is speculation lossless here: on this pair, this device and these settings?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/audit/goodness_of_fit.h"
#include "study/files/member_list.h"
#include "study/hooks.h"

namespace coppice::study {

struct AuditSetting {
  std::string name;  ///< as reports call it
  /// Temperature above 0, a policy that speculates. Seed and stream are the audit's.
  GenerateOptions options;
};
/// "dyspec 16, rejection" and the like.
std::string name_setting(const GenerateOptions& options);

/// Stopping is asked for after every text; AuditReport::stopped is then set.
struct AuditRequest : StudyHooks {
  std::vector<AuditSetting> settings;
  std::vector<std::vector<TokenId>> prompts;  ///< BOS included
  std::uint64_t seed = 1;
  /// Short texts drawn of each setting, all prompts together; 0: as many as show `smallest_bias`
  /// and the planted faults, or as `time_limit` allows, at least fewest_samples and what takes
  /// `seconds`.
  std::int64_t samples = 0;
  double seconds = 60.0;
  double time_limit = 600.0;  ///< seconds, about; for `samples` 0
  /// Total variation of the first token that is to be seen; planted faults that bias less need not.
  double smallest_bias = 0.1;
  std::int32_t compared_tokens = 128;  ///< of each prompt and setting, against plain decoding
  bool self_check = true;
};

inline constexpr std::int64_t fewest_samples = 500;
/// More would not end within days.
inline constexpr std::int64_t most_samples = 100'000'000;
/// Chance of a false alarm of all law tests of an audit together.
inline constexpr double familywise_error = 1e-6;
/// Power at which the smallest visible bias is stated.
inline constexpr double stated_power = 0.99;
/// Tokens of a sampled text, and how many of them are tested. Trees of the first step reach over
/// all of them; later steps begin wherever the first one ends.
inline constexpr std::int32_t sampled_tokens = 4, tested_tokens = 3;

/// One test of one setting.
struct EventFinding : Fit {
  std::string event;
  double smallest_bias = 1.0;  ///< total variation; detectable_variation
  bool biased = false;         ///< Holm over all tests of the audit
  /// Whether some bias was sure to be seen.
  bool tested() const { return smallest_bias < 1.0; }

  static void members(auto& self, auto visit) {
    visit("event", self.event);
    Fit::members(self, visit);
    visit("smallest_bias", self.smallest_bias);
    visit("biased", self.biased);
  }
};

struct LawFinding {
  std::string setting;
  std::int64_t samples = 0;
  double accepted_length = 0.0;
  double tree_size_mean = 0.0;
  std::vector<EventFinding> events;
  // The target's law at a tree's nodes against the one by a plain pass, no sampling involved:
  std::int64_t pass_nodes = 0;
  double pass_variation_mean = 0.0, pass_variation_largest = 0.0;
  double pass_variation_bound = 1.0;  ///< what rounding allows; 1 where a filter may cut elsewhere
  bool holds = true;
  /// Why nothing is shown where nothing was seen: no event is tested. Empty: some are.
  std::string not_tested;

  COPPICE_MEMBERS(setting, samples, accepted_length, tree_size_mean, events, pass_nodes,
                  pass_variation_mean, pass_variation_largest, pass_variation_bound, holds,
                  not_tested)
};

struct FaultFinding : Fit {
  std::string setting;
  std::string fault;
  bool caught = false;
  bool small = false;      ///< not caught, for it biases less than AuditRequest::smallest_bias here
  std::int64_t drawn = 0;  ///< samples until it was caught, found small or given up
  double most_bias = 1.0;  ///< total variation that these leave possible, with stated_power
  std::string event;       ///< the test of the smallest p-value, or "passes", "texts"

  static void members(auto& self, auto visit) {
    visit("setting", self.setting);
    visit("fault", self.fault);
    visit("caught", self.caught);
    visit("small", self.small);
    visit("drawn", self.drawn);
    visit("most_bias", self.most_bias);
    visit("event", self.event);
    Fit::members(self, visit);
  }
};

struct AuditDivergence {
  std::int32_t prompt = 0;
  std::int32_t position = 0;  ///< new token, from 0
  TokenId plain = -1, speculative = -1;
  /// Logit of the plain token less the other's in a plain pass; coupled: of logits over
  /// temperature plus noise.
  double gap = 0.0;
  double bound = 0.0;  ///< what rounding allows
  bool near_tie = false;

  COPPICE_MEMBERS(prompt, position, plain, speculative, gap, bound, near_tie)
};

/// One setting's texts against plain decoding, token for token.
struct TextFinding {
  std::string setting;
  std::int64_t asked_tokens = 0;  ///< of all prompts
  std::int64_t tokens = 0;        ///< compared: fewer where context or KV memory ended texts
  double accepted_length = 0.0;
  std::vector<AuditDivergence> divergences;
  bool holds = true;        ///< all are near-ties
  std::string not_tested;   ///< why nothing was compared; empty: something was
  std::string ended_early;  ///< what ended texts before all asked tokens; empty: nothing

  COPPICE_MEMBERS(setting, asked_tokens, tokens, accepted_length, divergences, holds, not_tested,
                  ended_early)
};

enum class AuditVerdict : std::uint8_t {
  lossless,   ///< nothing was found by tests that see what they have to
  biased,     ///< something was found
  undecided,  ///< nothing was found, but the tests would not have seen enough
};
const char* name_of(AuditVerdict verdict);

struct AuditReport {
  bool stopped = false;  ///< nothing else holds then
  std::string device, dtype;
  std::int64_t prompts = 0;
  std::uint64_t seed = 0;
  double temperature = 0.0;
  double significance = 0.0;  ///< of a single test: familywise_error over their number
  std::vector<LawFinding> laws;
  std::vector<FaultFinding> faults;
  std::vector<TextFinding> texts;
  bool law_holds = true;
  /// Some planted fault was caught, and all that were not are small.
  bool self_check_done = false, self_check_holds = true;
  double asked_bias = 1.0;    ///< AuditRequest::smallest_bias
  bool time_ran_out = false;  ///< before all faults were seen
  bool texts_hold = true;
  bool all_tested = true;  ///< no setting's law or texts went without a test
  /// Total variation of any tested token that every setting's samples would have shown, with
  /// probability stated_power, and of the first one; 1 if none.
  double smallest_bias() const;
  double smallest_bias_of_first() const;
  bool resolves() const { return smallest_bias_of_first() <= asked_bias; }
  AuditVerdict verdict() const {
    if (!law_holds || !texts_hold) return AuditVerdict::biased;
    const bool seen = !self_check_done || (self_check_holds && resolves());
    return stopped || !seen || !all_tested ? AuditVerdict::undecided : AuditVerdict::lossless;
  }
  bool lossless() const { return verdict() == AuditVerdict::lossless; }
};

/// Throws Error(usage) for what no engine can audit.
void check(const std::vector<AuditSetting>& settings);

/// Runs all tests. Throws Error: usage for a request that the engine does not take or no setting
/// or prompt, failure where texts have no room. Planted faults are taken out again at the end, also
/// after a throw; a fault planted in `engine` before is thus seen, and gone from its runners
/// afterwards where the self-check ran.
AuditReport run_audit(Engine& engine, const AuditRequest& request);

// An audit's report, for people and for programs.

/// Plain text of several lines. `engine` shows tokens as text where it has a tokenizer.
std::string to_text(const AuditReport& report, const Engine& engine);
/// One JSON object in one line.
std::string to_json(const AuditReport& report);

}  // namespace coppice::study
