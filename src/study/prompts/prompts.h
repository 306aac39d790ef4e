// Prompts out of the files that benchmarks come in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/types.h"

namespace coppice::study {

struct StudyPrompt {
  std::string kind;             ///< its group; empty: none is named
  std::string text;             ///< empty if `tokens` are given
  std::vector<TokenId> tokens;  ///< BOS included
  std::int64_t line = 0;        ///< of its file, from 1
  std::vector<std::string> later_turns =
      {};  ///< what is said after the answer to `text`, and so on
};

/// A prompt as results name it.
struct PromptName {
  std::string id;
  std::string kind;

  static void members(auto& self, auto visit) {
    visit("id", self.id);
    visit("kind", self.kind);
  }
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

}  // namespace coppice::study
