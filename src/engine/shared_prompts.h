// Texts that have the same tokens still to compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/sequence_state.h"

namespace coppice {

/// Texts in the order in which their prompts are computed: what an earlier one computes a later one
/// finds in the tree. Texts outlive it.
class SharedPrompts {
 public:
  /// From this many tokens on, it pays for a text to wait a step for them.
  static constexpr std::int32_t least_awaited = 16;

  void clear() { texts_.clear(); }
  /// So that adding so many cannot fail.
  void reserve(std::size_t texts) { texts_.reserve(texts); }
  /// How many tokens, of those before its last one, that a text lacks are in an earlier one's
  /// prompt, too; 0 for fewer than least_awaited.
  std::int32_t awaits(const SequenceState& text) const;
  void add(const SequenceState& text) { texts_.push_back(&text); }

 private:
  std::vector<const SequenceState*> texts_;
};

}  // namespace coppice
