// The rounds in which trees grow: of one text, or of several in step.
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "drafting/policy.h"

namespace coppice {

class DraftStep;

/// A text whose tree grows.
struct GrowingText {
  DraftPolicy& policy;  ///< of this text alone
  DraftSource& source;  ///< draws its nodes' children
  GrowthLimits limits;
  TokenTree& tree;             ///< given with its root, received finished
  std::exception_ptr failure;  ///< of its policy: then there is no tree, and the others go on
  DraftStep* step = nullptr;  ///< whose nodes a DraftRunner evaluates; null: another evaluates them

  /// What the next pass is to evaluate.
  std::span<const std::int32_t> frontier() const {
    return failure ? std::span<const std::int32_t>() : policy.growth().frontier;
  }
};

/// What makes the draft's passes.
class DraftPasses {
 public:
  virtual ~DraftPasses() = default;
  /// Evaluates what the texts want, in one pass if it fits, so that their sources can draw
  /// children; at least one wants something. A node's parent was evaluated before. The texts, and
  /// their order, are the same in all rounds of a step. What this throws ends the growth of all.
  virtual void evaluate(std::span<const GrowingText> texts) = 0;
};

/// A draft for one text at a time: makes its passes and draws its children.
class TextDraft : public DraftSource, public DraftPasses {
 public:
  void evaluate(std::span<const GrowingText> texts) final {
    evaluate(texts[0].policy.growth().candidates, texts[0].frontier());
  }
  virtual void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) = 0;
};

/// Grows the texts' trees, in as many rounds as the one that takes most has by itself. Each is
/// the tree that the text would have alone, but for those that are limited by `common`, which
/// were all begun since it was.
void grow_trees(std::span<GrowingText> texts, DraftPasses& passes, Grower* common = nullptr);

/// Grows the tree of one text. Throws what its policy throws.
void grow_tree(DraftPolicy& policy, TextDraft& draft, const GrowthLimits& limits, TokenTree& tree);

}  // namespace coppice
