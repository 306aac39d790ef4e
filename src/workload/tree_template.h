// Decoding trees to be written again: how long each branch is, and during which iterations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace coppice::workload {

/// A run of tokens that one query writes, a token in each of its iterations. A prompt is node 0,
/// whose tokens are there before iteration 1.
struct TemplateNode {
  std::int32_t parent = -1;  ///< precedes it
  std::int64_t tokens = 0;
  /// Iterations in which it is written, the last one included; `end` is begin - 1 for no tokens.
  std::int64_t begin = 1, end = 0;
};

struct TreeTemplate {
  std::string name;    ///< for messages: "template 3"
  std::string prompt;  ///< as recorded; may be empty
  std::vector<TemplateNode> nodes;

  std::int64_t prompt_tokens() const { return nodes.front().tokens; }
};

/// What one template, and a request for several, may hold.
inline constexpr std::size_t most_nodes = 16384;
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 27;

struct ReasoningFile {
  std::vector<TreeTemplate> trees;  ///< complete ones, in the file's order
  std::size_t incomplete = 0;       ///< left out: flagged so, or without a branch
};

/// Reads DeFT's templates of multi-step reasoning: a JSON list of
///   {"incompleted": false, "prompt": TEXT, "data": {"0": {"id": 0, "value": TOKENS,
///    "start": ITERATION, "end": ITERATION, "children": [1, 2]}, "1": ...}}
/// Throws Error(failure) that names file, template, node and remedy: no such list, a node that is
/// missing, has two parents or none, is as long as its iterations say it is not, or begins before
/// its parent has ended; a template that is too large. Incomplete ones are not looked at.
ReasoningFile read_reasoning(const std::filesystem::path& file);

/// DeFT's few-shot trees (4.1): tokens of the prompt, and iterations.
inline constexpr std::int32_t few_shot_prompt_tokens = 4000, few_shot_iterations = 400;

/// One prompt and branches behind it that are written side by side. `iterations` counts the
/// prompt's pass, as DeFT does: every branch gets a token in each of the others. Throws
/// Error(usage) for what is below 1, for a single iteration, or too large.
TreeTemplate few_shot(std::int64_t prompt_tokens, std::int32_t branches, std::int64_t iterations);

/// The same tree with every length divided by `divisor`, rounded up: for small models.
TreeTemplate shrunk(const TreeTemplate& tree, std::int64_t divisor);

/// The same tree behind a prompt of another length.
TreeTemplate with_prompt(TreeTemplate tree, std::int64_t prompt_tokens);

}  // namespace coppice::workload
