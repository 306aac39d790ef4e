// One text and the memory that both models keep of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "kernels/logits.h"
#include "models/kv/kv_forest.h"
#include "models/kv/kv_slots.h"

namespace coppice {

struct SequenceState {
  /// A text without tokens that shares its KV with nobody. `draft` is null where there is no draft;
  /// pools outlive the text.
  SequenceState(std::int64_t vocab_size, KvPool& target, KvPool* draft)
      : target_slots(&target), draft_slots(draft), counts(vocab_size) {}
  /// One that shares what it begins with. The forest outlives it.
  SequenceState(std::int64_t vocab_size, KvForest& forest)
      : base(forest),
        target_slots(&forest.target_pool()),
        draft_slots(forest.draft_pool()),
        counts(vocab_size) {}

  std::vector<TokenId> tokens;  ///< prompts and generated tokens; the last one is the next root
  /// The end of what it shares: tokens [0, base.length()).
  KvTip base;
  /// Its own KV slots of the tokens that follow. Both end before the last token, whose KV is
  /// written by the next verify pass, and the draft may lag further behind. In draft_slots
  /// `no_slot` stands for tokens that the draft skipped.
  KvSlots target_slots;
  KvSlots draft_slots;
  /// What the draft lacks of the shared tokens it goes without.
  bool draft_skips_base = false;
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
  /// Of tokens [0, target_kv()) the target has KV.
  std::int32_t target_kv() const { return base.length() + target_slots.size(); }
  /// Tokens [0, draft_kv()) the draft has KV of, or skipped.
  std::int32_t draft_kv() const {
    if (base.length() == 0 || draft_slots.size() > 0 || draft_skips_base) {
      return base.length() + draft_slots.size();
    }
    return base.draft_length();
  }
  /// Becomes a twin of a text, without its KV. It has no tokens yet.
  void take_text(const SequenceState& other) {
    tokens = other.tokens;
    counts = other.counts;
    largest_token = other.largest_token;
    steps = other.steps;
    taken_back = other.taken_back;
  }
  /// Forgets all but the first `length` tokens and their KV, and that of the last one, which the
  /// next pass writes. What it shares stays in the tree.
  void cut(std::int32_t length) {
    const std::int32_t kept = std::max(0, length - 1);
    target_slots.cut(std::max(0, kept - base.length()));
    draft_slots.cut(std::max(0, kept - base.length()));
    if (kept < base.length()) {
      base.rewind(kept);
      draft_skips_base = false;
    }
    if (length >= this->length()) return;
    while (this->length() > length) {
      counts.remove(tokens.back());
      tokens.pop_back();
    }
    largest_token = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  }

  /// Goes on with the KV that the tree has of its tokens, if it has none of its own behind what it
  /// shares. At least two tokens are left to compute: a text's first new token then comes with a
  /// pass over its prompt, whatever was in memory, and a seed repeats its text.
  void find_shared() noexcept {
    if (target_slots.size() == 0 && draft_slots.size() == 0) base.advance(tokens, length() - 2);
  }
  /// Hands its own KV of the first `count` tokens to the tree.
  void share(std::int32_t count) noexcept {
    const std::int32_t from = base.length();
    if (base.forest() == nullptr || count <= from) return;
    if (draft_skips_base) draft_slots.cut(0);
    base.append(std::span(tokens).subspan(static_cast<std::size_t>(from),
                                          static_cast<std::size_t>(count - from)),
                target_slots, draft_slots);
  }
  /// Has no KV from now on. What the tree took over stays there until others lack memory.
  void release() noexcept {
    share(target_kv());
    target_slots.cut(0);
    draft_slots.cut(0);
    base.rewind(0);
    draft_skips_base = false;
  }
};

}  // namespace coppice
