// Prompts of commands that try a pair out: some, spread evenly over a file, or, where none is
// named, texts that the target writes.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"
#include "study/prompts/prompts.h"

namespace coppice::cli {

/// --prompts, --no-bos, --limit and --prompt-tokens, with these usual values; `more` says of the
/// file what the command has to say.
void add_prompt_options(po::options_description& options, const char* more, std::int32_t limit,
                        std::int32_t tokens);

/// engine_options() of a command that needs a draft. Throws Error(usage) if there is none.
EngineOptions pair_options(const char* command, const po::variables_map& values,
                           const Speculation& speculation);
/// Loads it with its progress on the line.
Engine load_pair(EngineOptions request, ProgressLine& progress);

class ChosenPrompts {
 public:
  /// Takes --prompts, --limit and --prompt-tokens. Throws Error(usage) for counts out of range.
  explicit ChosenPrompts(const po::variables_map& values);
  /// Reads the file, if one is named. Throws as study::read_prompts() does, and Error(usage) for
  /// more prompts than the target writes.
  void read();

  bool written_by_target() const { return !file_; }
  /// Those of the file, once read; none if the target writes them.
  const std::vector<study::StudyPrompt>& of_file() const { return prompts_; }
  /// Most tokens of a prompt.
  std::int32_t tokens() const { return tokens_; }
  /// Each prompt's tokens; `seed`, `progress` and `stop`, which leaves some out, are for those that
  /// the target writes, `add_bos` for texts.
  std::vector<std::vector<TokenId>> tokens_of(Engine& engine, std::uint64_t seed, bool add_bos,
                                              ProgressLine& progress,
                                              const std::stop_token& stop) const;

 private:
  std::optional<std::string> file_;
  std::int32_t limit_, tokens_;
  std::vector<study::StudyPrompt> prompts_;
};

}  // namespace coppice::cli
