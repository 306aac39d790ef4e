// Sequences that have the same tokens still to compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/sequence_state.h"

namespace coppice {

/// Sequences in the order in which their prompts are computed: what an earlier one computes a later
/// one finds in the tree. Sequences outlive it.
class SharedPrompts {
 public:
  /// From this many tokens on, it pays for a sequence to wait a step for them.
  static constexpr std::int32_t least_awaited = 16;

  void clear() { sequences_.clear(); }
  /// So that adding so many cannot fail.
  void reserve(std::size_t sequences) { sequences_.reserve(sequences); }
  /// How many tokens, of those before its last one, that a sequence lacks are in an earlier one's
  /// prompt, too; 0 for fewer than least_awaited.
  std::int32_t awaits(const SequenceState& sequence) const;
  void add(const SequenceState& sequence) { sequences_.push_back(&sequence); }

 private:
  std::vector<const SequenceState*> sequences_;
};

}  // namespace coppice
