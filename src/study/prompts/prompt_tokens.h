// Prompts of a file as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "coppice.h"
#include "study/prompts/prompts.h"

namespace coppice::study {

/// What a command does with prompts, and what it can be told where they are too long.
struct PromptUse {
  std::int32_t most = 0;        ///< only the first so many tokens of each; 0: all
  std::int32_t new_tokens = 1;  ///< for which each must leave room
  bool add_bos = true;          ///< before texts; ids have theirs
  /// The options that make room. --kv-tokens is named beside them if the model's context is longer.
  const char* remedy = "cut prompts with --prompt-tokens";
};

/// The tokens of each prompt of `file`, BOS included; none is empty, and each leaves room for the
/// new ones in the target's context and KV memory. Throws Error: failure for texts where the engine
/// has no tokenizer; usage, which names file and line, for a prompt that is empty or too long and
/// for a token id outside the target's vocabulary.
std::vector<std::vector<TokenId>> to_tokens(Engine& engine, const std::filesystem::path& file,
                                            const std::vector<StudyPrompt>& prompts,
                                            const PromptUse& use);

/// The same with the later turns, [prompts][turns]. They are joined as plain text: a blank line
/// comes before each later turn and after it. Each turn is cut to `use.most` tokens; room is
/// checked for the first turn, for what comes later follows answers of unknown length.
std::vector<std::vector<std::vector<TokenId>>> to_turns(Engine& engine,
                                                        const std::filesystem::path& file,
                                                        const std::vector<StudyPrompt>& prompts,
                                                        const PromptUse& use);

}  // namespace coppice::study
