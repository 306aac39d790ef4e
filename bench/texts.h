// What the models of a bench go on from.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "coppice.h"

namespace coppice::bench {

struct PromptLine {
  std::string kind, text;
};

/// Up to `per_kind` prompts of each kind of a file of JSON lines with kind and prompt. Throws
/// std::exception.
std::vector<PromptLine> read_prompt_lines(const std::string& file, int per_kind);

/// Token ids of the prompts. With `tokens` above 0 each has this many: longer ones are cut, shorter
/// ones continued by the target, so that all of a prompt is text it might have written.
std::vector<std::vector<TokenId>> tokenized(Engine& engine, const std::vector<PromptLine>& prompts,
                                            std::size_t tokens);

/// `count` beginnings of `tokens` tokens each for models without a tokenizer: a token of its own
/// each, continued by the target.
std::vector<std::vector<TokenId>> written_prompts(Engine& engine, std::size_t count,
                                                  std::size_t tokens);

/// Writes them as JSON lines {"kind": ..., "tokens": [...]}; kinds may be fewer. Throws
/// std::runtime_error.
void write_prompts(const std::vector<PromptLine>& prompts,
                   const std::vector<std::vector<TokenId>>& ids, const std::string& file);

/// A draft of the shape of the one in `like` with random weights: what speculation must survive.
void write_useless_draft(const std::filesystem::path& like, const std::filesystem::path& dir);

}  // namespace coppice::bench
