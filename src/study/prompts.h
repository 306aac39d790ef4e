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
  std::string text;             ///< empty where `tokens` are given
  std::vector<TokenId> tokens;  ///< BOS included
  std::int64_t line = 0;        ///< of its file, from 1
};

/// Reads a file of prompts, one a line; blank lines are passed over.
///
/// Where the file's name ends in .jsonl or .json, or it begins with '{' or '[', every line is
/// a JSON object, and the prompt is the first of these keys that it has:
///   "turns"     list of texts, of which the first is taken (Spec-Bench, MT-Bench)
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

}  // namespace coppice::study
