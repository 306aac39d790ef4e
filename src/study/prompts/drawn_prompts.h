// Prompts where there is no file of them: texts that the target writes.
#pragma once

#include <cstdint>
#include <vector>

#include "coppice.h"

namespace coppice::study {

/// Most prompts that commands let the target write.
inline constexpr std::int32_t most_drawn_prompts = 1000;

/// Prompts that the target writes itself at temperature 1 from its BOS (token 0 where it has none):
/// `count` of `length` tokens. Throws Error: usage for a length that leaves no room behind it in
/// context or KV memory, before anything is written; failure where other texts take up that memory.
std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed);

}  // namespace coppice::study
