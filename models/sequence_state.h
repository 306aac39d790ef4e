// One text and the memory that both models keep of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "kernels/logits.h"
#include "models/kv/kv_slots.h"

namespace coppice {

struct SequenceState {
  /// A text without tokens. `draft` is null where there is no draft; pools outlive the text.
  SequenceState(std::int64_t vocab_size, KvPool& target, KvPool* draft)
      : target_slots(&target), draft_slots(draft), counts(vocab_size) {}

  std::vector<TokenId> tokens;  ///< prompts and generated tokens; the last one is the next root
  /// KV slots of tokens [0, size()). Both are shorter than `tokens`: the last token's KV is
  /// written by the next verify pass, and the draft may lag further behind. In draft_slots
  /// `no_slot` stands for tokens that the draft skipped.
  KvSlots target_slots;
  KvSlots draft_slots;
  TokenCounts counts;         ///< of all tokens, for the repetition penalty
  TokenId largest_token = 0;  ///< so far: a draft with fewer vocabulary rows cannot follow past it
  std::uint64_t steps = 0;    ///< begun so far: no step's noise is used twice
  /// How often tokens were taken back whose noise is known by that: a stop text's. What comes in
  /// their place has shared noise of its own.
  std::uint64_t taken_back = 0;

  std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()); }
  void append(TokenId token) {
    tokens.push_back(token);
    counts.add(token);
    if (token > largest_token) largest_token = token;
  }
  /// Forgets all but the first `length` tokens and frees their KV, and that of the last one, which
  /// the next pass writes.
  void cut(std::int32_t length) {
    target_slots.cut(std::max(0, length - 1));
    draft_slots.cut(std::max(0, length - 1));
    if (length >= this->length()) return;
    while (this->length() > length) {
      counts.remove(tokens.back());
      tokens.pop_back();
    }
    largest_token = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  }
};

}  // namespace coppice
