// One text and the memory that both models keep of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "kernels/logits.h"
#include "kernels/visible_kv.h"

namespace coppice {

/// Room for `more` slots, so that noting them cannot fail; memory grows as by push_back.
inline void make_room(std::vector<KvSlot>& slots, std::size_t more) {
  const std::size_t needed = slots.size() + more;
  if (needed > slots.capacity()) slots.reserve(std::max(needed, 2 * slots.capacity()));
}

struct SequenceState {
  std::vector<TokenId> tokens;  ///< prompts and generated tokens; the last one is the next root
  /// KV slots of tokens [0, size()). Both are shorter than `tokens`: the last token's KV is
  /// written by the next verify pass, and the draft may lag further behind. In draft_slots
  /// `no_slot` stands for tokens that the draft skipped.
  std::vector<KvSlot> target_slots;
  std::vector<KvSlot> draft_slots;
  TokenCounts counts;         ///< of all tokens, for the repetition penalty
  TokenId largest_token = 0;  ///< so far: a draft with fewer vocabulary rows cannot follow past it
  std::uint64_t steps = 0;    ///< begun so far: no step's noise is used twice

  std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()); }
  void append(TokenId token) {
    tokens.push_back(token);
    counts.add(token);
    if (token > largest_token) largest_token = token;
  }
  /// Forgets all but the first `length` tokens (not their slots).
  void cut(std::int32_t length) {
    if (length >= this->length()) return;
    while (this->length() > length) {
      counts.remove(tokens.back());
      tokens.pop_back();
    }
    largest_token = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  }
};

}  // namespace coppice
