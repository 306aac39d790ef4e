// Prompts that share prefixes as those of published sets do, of random tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/token_id.h"

namespace coppice::workload {

/// How prompts share. A prompt is what all have in common, what its group has, and what it alone
/// has.
struct SharingStatistics {
  std::int64_t mean_tokens = 0;  ///< of a prompt
  double common = 0.0;           ///< share of them that all prompts have
  double of_group = 0.0;         ///< that the group has beside
};

/// Mean length and share of shared tokens as FlashForge's section 2.5 has them: instructions and a
/// tool's description before a request (ToolBench: 1,835 tokens, 85%), a long document before a
/// question (LooGLE: 23,474 tokens, 91%).
SharingStatistics toolbench();
SharingStatistics loogle();

struct SharedPrompts {
  std::vector<std::vector<TokenId>> prompts;  ///< shuffled
  std::int64_t prompt_tokens = 0;             ///< of all
  std::int64_t distinct_tokens = 0;           ///< of the tree of prefixes: the least to compute
};

/// Groups' and own parts are half to one and a half times as long as they are in the mean, which is
/// kept. Throws Error(usage) for counts below 1, for more than 2^27 tokens in all, and for prompts
/// too short to have all parts.
SharedPrompts shared_prompts(const SharingStatistics& statistics, std::int32_t groups,
                             std::int32_t prompts_of_group, std::int64_t vocab_size,
                             std::uint64_t seed);

/// Tokens of the tree of prefixes of any prompts.
std::int64_t distinct_tokens(std::vector<std::vector<TokenId>> prompts);

}  // namespace coppice::workload
