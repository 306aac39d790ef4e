// Prompts as tokens: those of a file, and texts that the target writes.
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

/// Most prompts that commands let the target write.
inline constexpr std::int32_t most_drawn_prompts = 1000;

/// Prompts that the target writes itself at temperature 1 from its BOS (token 0 where it has none):
/// `count` of `length` tokens. Throws Error: usage for a length that leaves no room behind it in
/// context or KV memory, before anything is written; failure where other texts take up that memory.
std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed);

}  // namespace coppice::study
