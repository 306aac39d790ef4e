// What a step did.
#pragma once

#include <algorithm>
#include <cstdint>

namespace coppice {

/// What a step of one text, or of several, did.
struct StepWork {
  /// A step of one text.
  static StepWork alone(std::int32_t nodes, std::int64_t passes, std::int32_t length) {
    StepWork work;
    work.add(nodes, passes, length);
    return work;
  }
  /// One of its texts, of `length` tokens before it, which took part in so many draft passes; 0 if
  /// it was plain.
  void add(std::int32_t its_nodes, std::int64_t its_passes, std::int32_t length) {
    ++texts;
    nodes += its_nodes;
    drafting += its_passes > 0 ? 1 : 0;
    passes = std::max(passes, its_passes);
    turns += its_passes;
    kv_tokens += length;
  }

  std::int32_t texts = 0;
  std::int32_t nodes = 0;        ///< of all trees
  std::int32_t drafting = 0;     ///< texts that grew a tree
  std::int32_t prompt_rows = 0;  ///< of other texts' prompts, in the same target pass
  std::int64_t passes = 0;       ///< of the draft
  std::int64_t turns = 0;        ///< texts in each of these, summed
  std::int64_t kv_tokens = 0;    ///< of all texts, before the step

  /// Count the rows of the target's pass; of a draft pass, on average; and the texts in one.
  std::int32_t rows() const { return texts + nodes + prompt_rows; }
  std::int32_t draft_rows() const { return by_pass(nodes); }
  std::int32_t draft_texts() const { return by_pass(turns); }

 private:
  std::int32_t by_pass(std::int64_t of_all) const {
    return static_cast<std::int32_t>(
        std::max<std::int64_t>(1, of_all / std::max<std::int64_t>(1, passes)));
  }
};

}  // namespace coppice
