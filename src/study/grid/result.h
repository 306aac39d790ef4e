// What one prompt under one cell brought: a line of results.jsonl.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coppice.h"
#include "study/files/member_list.h"
#include "study/grid/node_counts.h"

namespace coppice::study {

/// Seconds of wall clock by component; their sum is the generation, loading left out.
struct Components {
  double prefill = 0.0;       ///< both models' passes over the prompt, first token included
  double draft = 0.0;         ///< the draft's forward passes
  double drawing = 0.0;       ///< children out of the draft's logits
  double construction = 0.0;  ///< the policy's own work, and the tree's order
  double verify = 0.0;        ///< the target's forward passes after prefill
  double judging = 0.0;
  double other = 0.0;

  static void members(auto& self, auto visit) {
    for (const auto& [name, part] : parts) visit(name, self.*part);
  }
  static const std::pair<const char*, double Components::*> parts[7];
  /// The parts of a step's time.
  static std::span<const std::pair<const char*, double Components::*>> of_step() {
    return std::span(parts).subspan(1);
  }
  /// All after prefill.
  double decode() const;
  Components& operator+=(const Components& others);
};

inline constexpr std::pair<const char*, double Components::*> Components::parts[] = {
    {"prefill", &Components::prefill}, {"draft", &Components::draft},
    {"drawing", &Components::drawing}, {"construction", &Components::construction},
    {"verify", &Components::verify},   {"judging", &Components::judging},
    {"other", &Components::other}};

/// One turn of a conversation; most prompts have one.
struct Turn {
  /// All tokens before the new ones, BOS and earlier turns included.
  std::int32_t prompt_tokens = 0;
  std::int32_t prefill_tokens = 0;  ///< of the new ones, those that came with prefill
  std::vector<TokenId> tokens;      ///< new ones
  std::string text;                 ///< theirs
  std::string finish_reason;

  COPPICE_MEMBERS(prompt_tokens, prefill_tokens, tokens, text, finish_reason)
};

struct Result {
  std::string cell;         ///< Cell::key()
  std::string prompt;       ///< PromptName::id
  std::int32_t round = 0;   ///< from 0
  std::vector<Turn> turns;  ///< at least one; fewer than the prompt's if the memory ended one
  std::int64_t draft_passes = 0;
  Components seconds;
  NodeCounts nodes;
  // By step, through all turns:
  std::vector<std::int32_t> tree_sizes;  ///< draft tokens
  std::vector<std::int32_t> accepted;    ///< draft tokens, the bonus token not counted
  std::string device, dtype;
  std::string run;  ///< names the run that made it, by its Provenance::date

  COPPICE_MEMBERS(cell, prompt, round, turns, draft_passes, seconds, nodes, tree_sizes, accepted,
                  device, dtype, run)

  std::int64_t tokens() const;  ///< new ones of all turns
  /// Of these, what decoding brought and not prefill.
  std::int64_t decoded() const;
  std::int64_t steps() const { return static_cast<std::int64_t>(accepted.size()); }
  std::int64_t drafted() const;  ///< draft tokens of all trees
  std::int64_t accepted_drafts() const;
  /// Accepted and bonus tokens of all steps.
  std::int64_t judged_good() const { return accepted_drafts() + steps(); }
};

/// Throws Error(failure), one line without a place, for what no run brings.
void check(const Result& result);

}  // namespace coppice::study
