// Settings run alternately: which of them is faster than plain decoding, and how surely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "coppice.h"
#include "engine/policy_options.h"

namespace coppice::study {

/// Speculation that makes less than this of plain decoding's speed is not advised.
inline constexpr double least_speedup = 1.02;
/// Plain decoding whose fastest round is this much faster than its slowest tells of a noisy
/// machine.
inline constexpr double noisy_ratio = 1.2;

/// What runs brought, prefill left out.
struct Trial {
  double tokens = 0.0, seconds = 0.0;
  double steps = 0.0, judged = 0.0;  ///< judged: tokens judged good, bonus tokens included
  double drafted = 0.0;              ///< draft tokens
  double draft_seconds = 0.0, verify_seconds = 0.0;

  Trial& operator+=(const Trial& other);
  double tokens_per_second() const { return seconds > 0.0 ? tokens / seconds : 0.0; }
  double accepted_length() const { return steps > 0.0 ? judged / steps : 1.0; }
};

/// A setting, what it made in short runs, and what it made in the rounds of a check.
struct Candidate {
  Policy policy = Policy::none;
  std::int32_t tree_size = 0;   ///< 0: automatic, or plain
  std::int32_t tree_depth = 0;  ///< sequoia's bound
  Trial sampled = {};           ///< of automatic sizes nothing is sampled
  double sampled_speedup = 1.0;  ///< over plain decoding on the same prompts
  // Of the check:
  Trial measured = {};  ///< over all rounds
  /// Over plain decoding of the same round: the median of the rounds, the least, the greatest.
  double speedup = 1.0, lowest = 1.0, highest = 1.0;

  bool plain() const { return policy == Policy::none; }
  bool is_sampled() const { return sampled.seconds > 0.0; }
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

/// Runs every setting on every prompt in every round, in an order that rotates. `run` takes the
/// setting's place, the prompt's and the round; nullopt from it ends the check, and so this.
/// Throws Error(failure) for a run that took no time.
std::optional<Check> confirm(
    std::vector<Candidate> settings, std::size_t prompts, std::int32_t rounds,
    const std::function<std::optional<Trial>(std::size_t setting, std::size_t prompt,
                                             std::int32_t round)>& run);

}  // namespace coppice::study
