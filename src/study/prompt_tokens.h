// Prompts of a file as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "coppice.h"
#include "study/prompts.h"

namespace coppice::study {

/// The first `most` tokens of each prompt of `file`, BOS included. Throws Error: failure for texts
/// where the engine has no tokenizer, and for a token id outside the target's vocabulary, which
/// names file and line.
std::vector<std::vector<TokenId>> to_tokens(const Engine& engine, const std::filesystem::path& file,
                                            const std::vector<StudyPrompt>& prompts,
                                            std::int32_t most, bool add_bos);

}  // namespace coppice::study
