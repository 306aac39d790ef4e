// Prompts out of the files that benchmarks come in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/types.h"
#include "coppice.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// What reports call the kind of a prompt that names none.
inline constexpr const char* no_kind = "no kind given";

struct StudyPrompt {
  std::string kind;  ///< its group; empty: none is named
  /// What is said, each after the answer to those before. Empty if `tokens` are given.
  std::vector<std::string> turns;
  std::vector<TokenId> tokens;  ///< BOS included
  std::int64_t line = 0;        ///< of its file, from 1
};

/// A prompt as results name it.
struct PromptName {
  std::string id;
  std::string kind;

  COPPICE_MEMBERS(id, kind)
};

/// The id goes by what a prompt says, so that it is the same in every study: 16 hexadecimal digits,
/// and "-2" for the second prompt that says the same, and so on.
std::vector<PromptName> names_of(const std::vector<StudyPrompt>& prompts);

/// GenerateOptions::stream of a prompt: the same in every study, another for every prompt.
std::uint64_t stream_of(const std::string& prompt_id);

/// Reads a file of prompts, one a line; blank lines are passed over.
///
/// Where the file's name ends in .jsonl or .json, or it begins with '{' or '[', every line is
/// a JSON object, and the prompt is the first of these keys that it has:
///   "turns"     list of texts (Spec-Bench, MT-Bench): the first, and later turns
///   "prompt"    text (HumanEval, this project's bench/prompts)
///   "question"  text (GSM8K)
///   "text"      text
///   "tokens"    list of token ids, BOS included, for models without a tokenizer
/// "kind" or "category", a text, groups prompts; "question_id", "answer" and all else is ignored.
/// Any other file is plain text, a prompt a line.
///
/// Throws Error(failure) that names file and line: not JSON, no prompt, an empty one, invalid
/// UTF-8; and for a file that cannot be read, holds no prompt, or is larger than 256 MiB.
std::vector<StudyPrompt> read_prompts(const std::filesystem::path& file);

/// The same as a file that read_prompts() takes, with their ids.
std::string to_jsonl(const std::vector<StudyPrompt>& prompts);

/// What tells a prompt from others, however many of its tokens are used.
std::string print_of(const StudyPrompt& prompt);

/// `count` of the prompts, evenly spread over the file, which is often sorted by kind; all of them
/// if there are no more, or `count` is 0.
std::vector<StudyPrompt> spread(std::vector<StudyPrompt> prompts, std::int32_t count);

/// Those of `all` of which none of `some` says the same.
std::vector<StudyPrompt> left_out(const std::vector<StudyPrompt>& all,
                                  const std::vector<StudyPrompt>& some);

// Prompts as tokens: those of a file, and texts that the target writes.

/// Most tokens of a text, its prompt included; and whether the target's context is longer.
struct Room {
  std::int32_t tokens;
  bool memory_is_short;
};
/// By the target's context and KV memory, and with_draft by the draft's KV memory too.
Room room_of(Engine& engine, bool with_draft = false);

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

/// The turns of a prompt, at least one; none is empty.
using Turns = std::vector<std::vector<TokenId>>;

/// The same with the later turns. They are joined as plain text: a blank line
/// comes before each later turn and after it. Each turn is cut to `use.most` tokens; room is
/// checked for the first turn, for what comes later follows answers of unknown length.
std::vector<Turns> to_turns(Engine& engine, const std::filesystem::path& file,
                            const std::vector<StudyPrompt>& prompts, const PromptUse& use);

/// Most prompts that commands let the target write.
inline constexpr std::int32_t most_drawn_prompts = 1000;

/// Prompts that the target writes itself at temperature 1 from its BOS (token 0 where it has none):
/// `count` of `length` tokens. Throws Error: usage for a length that leaves no room behind it in
/// context or KV memory, before anything is written; failure where other texts take up that memory.
/// Once `stop` is asked to stop there are no more. `progress` hears how far it is, 0 to 1.
std::vector<std::vector<TokenId>> draw_prompts(Engine& engine, std::int32_t count,
                                               std::int32_t length, std::uint64_t seed,
                                               const std::stop_token& stop = {},
                                               const std::function<void(double)>& progress = {});

}  // namespace coppice::study
