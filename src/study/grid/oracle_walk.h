// What the best tree in hindsight would bring.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coppice.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// Walks of a study along every prompt of a pair at a temperature above 0.
struct OracleCell {
  std::string pair;  ///< Cell::pair
  double temperature = 0.0;
  std::int32_t size = 0;  ///< draft tokens of a tree

  std::string key() const;  ///< as Cell::key()
  COPPICE_MEMBERS(pair, temperature, size)
};

/// Such a walk along the text of one prompt: a line of results.jsonl.
struct OracleWalk {
  std::string cell;            ///< OracleCell::key()
  std::string prompt;          ///< PromptName::id
  std::int32_t positions = 0;  ///< steps walked
  /// Sum over the steps of the expected accepted length, the bonus token included.
  double expected = 0.0;

  COPPICE_MEMBERS(cell, prompt, positions, expected)
};

/// Walks along `text`, which the target wrote after `prompt` at a temperature above 0, in steps of
/// the oracle's tree (drafting/oracle.h): at each step the tree of at most `size` nodes that is
/// worth most by the target's own probabilities; the step ends where the text leaves it. The text's
/// first token comes before, with the prompt, unless that is a single token. So steps begin where a
/// decoder with these trees would begin them. At most `positions` steps are walked,
/// for each costs about `size` target passes. Names are left to the caller.
///
/// It bounds trees that are chosen without knowing the randomness of the target's choice. Sampled
/// rejection and coupled noise share randomness between draft and target (a draft equal to the
/// target is accepted always), so a very good draft can lie above it. At temperature 0, where the
/// oracle's tree is the text itself, there is nothing to learn: the length is size + 1.
///
/// Throws Error(failure) where the KV slots do not suffice.
OracleWalk walk_oracle(Engine& engine, std::span<const TokenId> prompt,
                       std::span<const TokenId> text, const GenerateOptions& request,
                       std::int32_t size, std::int32_t positions);

}  // namespace coppice::study
