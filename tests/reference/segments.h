// Tokens with their intervals as a pass takes them.
#pragma once

#include <span>
#include <vector>

#include "kernels/visible_kv.h"

namespace coppice::testing {

/// A segment per token, over the tokens' own memory.
inline std::vector<KvSegment> segments_of(std::span<const VisibleKv> tokens) {
  std::vector<KvSegment> segments;
  for (const VisibleKv& token : tokens) {
    segments.push_back({{&token.slot, 1}, token.q_begin, token.q_end, false, token.position});
  }
  return segments;
}

}  // namespace coppice::testing
