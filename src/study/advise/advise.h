// Which policy and tree size pay on this pair and this device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/advise/check.h"

namespace coppice::study {

/// Fewest new tokens of a prompt: where texts end trees are cut short.
inline constexpr std::int32_t fewest_new_tokens = 24;

struct AdviceRequest {
  std::vector<std::vector<TokenId>> prompts;  ///< BOS included
  /// Temperature, filters, acceptance, draft temperature and seed; policies are the advice's.
  GenerateOptions sampling;
  std::int32_t new_tokens = 96;  ///< of each prompt, by each setting that is tried on it
  bool check = true;             ///< let rounds against plain decoding decide
  std::int32_t rounds = 3;       ///< of the check
  /// What Sequoia's trees are planned for; empty: it is measured on the prompts.
  std::vector<double> acceptance_vector;
  std::function<void(const std::string& what, double fraction)> progress;
  std::function<bool()> stop;  ///< asked between steps; true ends it, Advice::stopped being set
  /// In the place of all runs, for tests: a machine of any speed and noise.
  std::function<Trial(const GenerateOptions& options, std::size_t prompt)> run;
};

struct Advice {
  std::string device, dtype;
  double temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
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
  bool stopped = false;  ///< nothing else holds then
};

/// Throws Error(usage) if that many tokens of prompt and new ones do not fit the target's context
/// or the KV slots of both models.
void require_room(Engine& engine, std::int64_t prompt_tokens, std::int32_t new_tokens);

/// Throws Error: usage without prompts or draft, for sampling options out of range, or as
/// require_room(), before anything is measured; failure where there is too little free KV memory to
/// measure in, or where memory or context ends a text.
Advice advise(Engine& engine, const AdviceRequest& request);

/// Largest tree of a candidate: what engines must be loaded for.
inline constexpr std::int32_t largest_advised_tree = 64;

// Advice for people and for programs.

/// Options of `coppice generate` that choose what is advised: "--policy chain --tree-size 4".
std::string policy_options(const Advice& advice);
/// Plain text of several lines. `command` is the advised command line in full.
std::string to_text(const Advice& advice, const std::string& command);
/// One JSON object in one line.
std::string to_json(const Advice& advice, const std::string& command);

}  // namespace coppice::study
