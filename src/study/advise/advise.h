// Which policy and tree size pay on this pair and this device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/policy_options.h"
#include "study/hooks.h"
#include "study/observed.h"
#include "study/statistics.h"

namespace coppice::study {

// Settings run alternately: which of them is faster than plain decoding, and how surely.

/// Speculation that makes less than this of plain decoding's speed is not advised.
inline constexpr double least_speedup = 1.02;

/// A setting, what it made in short runs, and what it made in the rounds of a check.
struct Candidate {
  Policy policy = Policy::none;
  std::int32_t tree_size = 0;    ///< 0: automatic, or plain
  std::int32_t tree_depth = 0;   ///< sequoia's bound
  bool looks_up = false;         ///< --lookup text
  bool drafts = true;            ///< false: --draft none
  Trial sampled = {};            ///< of automatic sizes nothing is sampled
  std::int32_t prompts = 0;      ///< on which it was sampled
  double sampled_speedup = 1.0;  ///< over plain decoding on the same prompts
  // Results of the check:
  Trial measured = {};  ///< over all rounds
  /// Over plain decoding of the same round: the median of the rounds, the least, the greatest.
  double speedup = 1.0, lowest = 1.0, highest = 1.0;

  bool plain() const { return policy == Policy::none; }
  /// As studies call it: "dyspec+lookup".
  std::string name() const;
  bool is_sampled() const { return sampled.seconds > 0.0; }
  /// What short runs made, or if there were none what the check's rounds made.
  const Trial& figures() const { return is_sampled() ? sampled : measured; }
};

struct Check {
  std::vector<Candidate> settings;  ///< the first is plain decoding
  std::int32_t rounds = 0;
  double plain_slowest = 0.0, plain_fastest = 0.0;  ///< tokens per second by round
  /// The setting of greatest speed-up among those that were faster than plain decoding in every
  /// round, and by least_speedup in the median round. None: plain decoding.
  std::optional<std::size_t> best;
  /// No setting is confirmed, but one was faster in the median round and slower in another.
  bool undecided = false;

  bool noisy() const { return plain_fastest > noisy_ratio * plain_slowest; }
};

/// A setting on a prompt, by their places, in a round. nullopt ends the check.
using CheckedRun = std::function<std::optional<Trial>(std::size_t setting, std::size_t prompt,
                                                      std::int32_t round)>;
/// Runs every setting on every prompt in every round, in an order that rotates. nullopt if a run
/// ended it. Throws Error(failure) for a run that took no time.
std::optional<Check> confirm(std::vector<Candidate> settings, std::size_t prompts,
                             std::int32_t rounds, const CheckedRun& run);

// Weights of the draft, of which the fastest are found before policies are tried.

/// A pair whose draft has these weights, and what it made in short runs.
struct DraftFormat {
  std::string name;  ///< "as stored", "q8_0", "self:q4_k"
  EngineOptions pair = {};
  std::string problem = {};        ///< why it could not be tried; empty: it was
  double draft_seconds = 0.0;      ///< of a pass of one row, by the cost table
  Trial drafted = {}, plain = {};  ///< with automatic sizes, and plain decoding beside it

  /// Over plain decoding of the same texts; 0 if it was not tried.
  double speedup() const {
    const double usual = plain.tokens_per_second();
    return usual > 0.0 ? drafted.tokens_per_second() / usual : 0.0;
  }
};

/// What is worth trying: the pair as it is, the draft rounded, if it is stored in 16 or 32 bits,
/// and the target's own copy in fewer bits, if the target is. Throws Error as opening weights does.
std::vector<DraftFormat> draft_formats(const EngineOptions& pair);
/// The fastest; the first, which is the pair as given, where none is least_speedup times as fast.
std::size_t best_format(const std::vector<DraftFormat>& formats);

// The advice.

/// Fewest new tokens of a prompt: where texts end trees are cut short.
inline constexpr std::int32_t fewest_new_tokens = 24;

/// Stopping is asked for between steps; Advice::stopped is then set.
struct AdviceRequest : StudyHooks {
  std::stop_token stop_measuring;  ///< asked for together with `stop`: ends the measuring of costs
  std::vector<std::vector<TokenId>> prompts;  ///< BOS included
  /// Temperature, filters, acceptance, draft temperature and seed; policies are the advice's.
  GenerateOptions sampling;
  std::int32_t new_tokens = 96;  ///< of each prompt, by each setting that is tried on it
  bool check = true;             ///< let rounds against plain decoding decide
  std::int32_t rounds = 3;       ///< of the check
  /// What Sequoia's trees are planned for; empty: it is measured on the prompts.
  std::vector<double> acceptance_vector;
  /// In the place of all runs, for tests: a machine of any speed and noise.
  std::function<Trial(const GenerateOptions& options, std::size_t prompt)> run;
};

struct Advice {
  std::string device, dtype;
  double temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
  std::int32_t largest_tree = 0;  ///< that was tried
  /// By the cost table, of passes of 1 and 17 rows, at the usual length of the texts.
  double target_seconds = 0.0, target_wide_seconds = 0.0, draft_seconds = 0.0;
  std::vector<double> acceptance_vector;  ///< by sibling rank: what Sequoia's trees are planned for
  Candidate plain;
  std::vector<Candidate> candidates;  ///< by policy and size
  /// The verdict: of the check if there was one, else of the short runs. Plain if nothing pays;
  /// tree_size 0 with a policy: automatic sizes.
  Candidate advised;
  bool pays = false;
  std::optional<Check> check;
  std::vector<DraftFormat> formats;  ///< of the draft, if several were tried
  std::size_t format = 0;            ///< the one that all else is about
  bool stopped = false;              ///< nothing else holds then
};

/// Throws Error(usage) if that many tokens of prompt and new ones do not fit the target's context
/// or the KV slots of both models.
void require_room(Engine& engine, std::int64_t prompt_tokens, std::int32_t new_tokens);

/// Throws Error: usage without prompts or draft, for sampling options out of range, or as
/// require_room(), before anything is measured; failure where there is too little free KV memory to
/// measure in, or where memory or context ends a text.
Advice advise(Engine& engine, const AdviceRequest& request);

/// Writes the request's prompts with the engine of `format.pair`, plainly and with automatic sizes.
/// False: stopped. Throws as advise().
bool try_format(Engine& engine, const AdviceRequest& request, DraftFormat& format);

/// Largest tree of a candidate where no layers are streamed: what engines must be loaded for.
inline constexpr std::int32_t largest_advised_tree = 64;

// Advice for people and for programs.

/// Options of `coppice generate` that choose what is advised: "--policy chain --tree-size 4". Where
/// the draft has no part (Candidate::drafts), --draft none is one of them.
std::string policy_options(const Advice& advice);
/// Plain text of several lines. `command` is the advised command line in full.
std::string to_text(const Advice& advice, const std::string& command);
/// One JSON object in one line.
std::string to_json(const Advice& advice, const std::string& command);

}  // namespace coppice::study
