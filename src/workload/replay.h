// Trees written again on an engine: the tokens are sampled, their number is the template's.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "coppice.h"
#include "workload/motion.h"

namespace coppice::workload {

/// What steps brought, over texts.
struct Accepted {
  std::string policy;      ///< that the texts were written with
  std::int64_t steps = 0;  ///< of each text
  double tokens = 0.0;     ///< kept of them (Statistics::accepted_length)

  void add(const Generation& text);
  double length() const { return steps == 0 ? 0.0 : tokens / static_cast<double>(steps); }
};

/// What a replay took. Sums over trees, but for the peaks.
struct ReplayReport {
  std::int64_t trees = 0;   ///< written to their ends
  std::int64_t passes = 0;  ///< of the target; of a prompt's only the last
  std::int64_t generated = 0;
  std::int64_t prompt_tokens = 0;  ///< of texts as they were begun or went on
  std::int64_t cached_tokens = 0;  ///< of these, whose KV was there
  std::int64_t forks = 0, prunes = 0;
  Accepted accepted;  ///< no policy where lengths are forced
  std::int32_t preemptions = 0;
  /// The target's KV slots in use at the end of a span, the most of all.
  std::int64_t peak_kv = 0;
  /// KV tokens of former passes that passes read: if each text read its own, and as they did.
  std::int64_t read_by_text = 0, read_by_tree = 0;
  Seconds seconds;       ///< `total` is the clock's, and `other` what the parts leave of it
  bool finished = true;  ///< false: stopped
};

struct ReplaySettings {
  GenerateOptions options;  ///< sampling, seed and speculation; lengths are the template's
  bool sharing = true;      ///< false: every branch is a copy that shares nothing
  /// Hears how many tokens have been written, of this tree; may be empty.
  std::function<void(std::int64_t tokens)> progress;
  std::stop_token stop = {};
};

/// A prompt of `tokens` tokens: of the text, begun again where it is too short; of an empty text,
/// or where the engine has no tokenizer, random ones.
std::vector<TokenId> prompt_of_length(const Engine& engine, std::string_view text,
                                      std::int64_t tokens, std::uint64_t seed);

/// Throws Error(usage), which names the tree and a remedy, if its longest path does not fit the
/// engine's context. The remedy counts that the tree is shrunk() by `divisor` already.
void require_context(const Engine& engine, const TreeTemplate& tree, std::int64_t divisor);

/// Writes the tree behind `prompt`, which has its prompt's length: branches are forked where they
/// begin, written side by side, and pruned where nothing is written below them any more. Adds to
/// `report`. Throws what a branch throws, and Error(failure) where one ends early for want of
/// memory.
void replay(Engine& engine, const TreeTemplate& tree, const std::vector<TokenId>& prompt,
            const ReplaySettings& settings, ReplayReport& report);

}  // namespace coppice::workload
