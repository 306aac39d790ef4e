// Records of speculative decoding: one token tree, and how many tokens each step accepted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "drafting/static_tree.h"
#include "workload/motion.h"

namespace coppice::workload {

/// How long the prompt was that DeFT's records were made behind (table 5), in tokens.
inline constexpr std::int64_t recorded_prompt_tokens = 1016;

struct AcceptanceRecord {
  std::string name;    ///< for messages: "record 3"
  std::string prompt;  ///< as recorded; may be empty
  /// By step, the bonus token included; 0: the step was thrown away.
  std::vector<std::int32_t> accepted;
};

struct SpeculationFile {
  TreeShape tree;
  std::vector<AcceptanceRecord> records;
};

/// Reads DeFT's records: {"Tree_Structure": [[0], [0, 0], [1], ...], "Records": [{"prompt": TEXT or
/// list of texts, "Accept_length": [1, 3, ...]}, ...]}. Throws Error(failure) that names file,
/// record, step and remedy: no such object, no tree (TreeShape), no steps, a step that accepts more
/// tokens than the tree is deep and one.
SpeculationFile read_speculation(const std::filesystem::path& file);

/// Steps that bring `tokens` tokens in all: those recorded, the last one cut, and where they do not
/// suffice more, drawn evenly between the record's least and most (DeFT goes on like this). The
/// least is at least 1. 0 tokens: the record itself.
std::vector<std::int32_t> steps_of(const AcceptanceRecord& record, std::int64_t tokens,
                                   std::uint64_t seed);

/// Counts the reads of a prompt and these steps. A pass over the tree reads the text before the
/// root, and root and tree themselves; per query: what each row sees.
Reads reads_of(const TreeShape& tree, std::int64_t prompt_tokens,
               const std::vector<std::int32_t>& accepted);

/// A path of `length` nodes from the root, by indices of the shape: the first of those that go
/// that deep.
std::vector<std::int32_t> path_of(const TreeShape& tree, std::int32_t length);

}  // namespace coppice::workload
