// What one prompt under one cell brought: a line of results.jsonl.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/node_counts.h"

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

  /// All after prefill.
  double decode() const { return draft + drawing + construction + verify + judging + other; }
  Components& operator+=(const Components& other_components);
};

struct Record {
  std::string cell;         ///< Cell::key()
  std::int32_t prompt = 0;  ///< place in the study's prompts, from 0
  std::string kind;
  std::int32_t prompt_tokens = 0;
  std::int64_t tokens = 0;          ///< new ones
  std::int64_t prefill_tokens = 0;  ///< of these, those that came with prefill
  std::string finish_reason;
  std::int64_t steps = 0;
  std::int64_t judged_good = 0;  ///< accepted and bonus tokens of all steps
  std::int64_t drafted = 0;      ///< draft tokens of all trees
  std::int64_t draft_passes = 0;
  Components seconds;
  NodeCounts nodes;
  // By step, of a cell's first prompt only:
  std::vector<std::int32_t> tree_sizes;
  std::vector<std::int32_t> accepted;  ///< draft tokens, the bonus token not counted
  std::string device, dtype;

  /// What decoding brought, of all new tokens.
  std::int64_t decoded() const { return tokens - prefill_tokens; }
  std::int64_t accepted_drafts() const { return judged_good - steps; }
};

/// A line without its end.
std::string to_line(const Record& record);
/// Throws Error(failure), one line without a place, for anything but what to_line() writes.
Record record_from(const nlohmann::json& json);

}  // namespace coppice::study
