// One text and the memory that both models keep of it.
//
// Invariants, but for what a step that failed leaves to the next one:
// (1) The prefix cache owns the KV of tokens [0, base.length()). target_slots owns the target's of
//     [base.length(), target_kv()), which ends before the last token and has no gaps.
// (2) draft_from < 0: draft_slots begin at token base.length(). draft_from >= 0: they begin at
//     token draft_from <= base.length(), and the draft goes without the cache's KV of the tokens
//     before it that lack the draft's.
// (3) counts and largest_token are those of all tokens; new_counts, while it counts, those of the
//     generation at hand.
// (4) steps and epoch never decrease, so that no random number is used twice. A fork has its
//     original's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/token_rules.h"
#include "base/token_tree.h"
#include "base/types.h"
#include "kernels/logits.h"
#include "models/kv/kv_slots.h"
#include "models/kv/prefix_cache.h"

namespace coppice {

struct SequenceState {
  /// A text without tokens that shares its KV with nobody. `draft` is null where there is no draft;
  /// pools outlive the text.
  SequenceState(std::int64_t vocab_size, KvPool& target, KvPool* draft)
      : target_slots(&target), draft_slots(draft), counts(vocab_size) {}
  /// One that shares what it begins with. The cache outlives it.
  SequenceState(std::int64_t vocab_size, PrefixCache& cache)
      : base(cache),
        target_slots(&cache.target_pool()),
        draft_slots(cache.draft_pool()),
        counts(vocab_size) {}

  std::vector<TokenId> tokens;  ///< prompts and generated tokens; the last one is the next root
  /// The end of what it shares: tokens [0, base.length()).
  CacheRef base;
  /// Its own KV slots of the tokens that follow. Both end before the last token, whose KV is
  /// written by the next verify pass, and the draft may lag further behind. In draft_slots
  /// `no_slot` stands for tokens that the draft skipped.
  KvSlots target_slots;
  KvSlots draft_slots;
  /// The token that draft_slots begin with, if that is one of those it shares: the draft goes
  /// without what the tree lacks of its KV before, and the text has its own of what follows. Else
  /// negative: they begin behind what it shares.
  std::int32_t draft_from = -1;
  TokenCounts counts;         ///< of all tokens, for the repetition penalty
  TokenId largest_token = 0;  ///< so far: a draft with fewer vocabulary rows cannot follow past it
  std::uint64_t steps = 0;    ///< begun so far: no step's noise is used twice
  /// Noise epoch: how often the sequence was cut back, by Sequence::rewind() or to a stop text.
  /// Tokens written again at the same positions draw coupled noise of their own.
  std::uint64_t epoch = 0;

  /// Of the generation at hand: how often its new tokens occur, where a penalty counts them, and
  /// what is added to logits, in the order of tokens.
  TokenCounts new_counts;
  std::vector<TokenBias> bias;
  /// What rules the tokens that are being generated, and the state they have come to; null: none.
  const TokenRules* rules = nullptr;
  std::int32_t rule_state = 0;

  std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()); }
  void append(TokenId token) {
    tokens.push_back(token);
    counts.add(token);
    if (new_counts) new_counts.add(token);
    if (token > largest_token) largest_token = token;
    if (rules == nullptr) return;
    rule_state = rules->advance(rule_state, token);
    if (rule_state < 0) {
      throw_failure(cat("constraint: token ", token, " was written and may not follow the text"));
    }
  }
  /// An empty tree at the last token.
  void begin_tree(TokenTree& tree) const { tree.reset(tokens.back(), rules, rule_state); }
  /// Counts the tokens that the target has KV of: [0, target_kv()).
  std::int32_t target_kv() const { return base.length() + target_slots.size(); }
  std::int32_t draft_begin() const { return draft_from >= 0 ? draft_from : base.length(); }
  /// Tokens [0, draft_kv()) the draft has KV of, or skipped.
  std::int32_t draft_kv() const {
    if (base.length() == 0 || draft_slots.size() > 0 || draft_from >= 0) {
      return draft_begin() + draft_slots.size();
    }
    return base.draft_length();
  }
  /// Whether the draft's KV of what it shares is the first that it lacks: the tree's, too.
  bool fills_draft() const { return draft_from < 0 && draft_kv() < base.length(); }
  /// Goes without the draft's KV up to `length`, of those tokens that lack it.
  void skip_draft(std::int32_t length) {
    if (draft_kv() < base.length()) {
      draft_slots.cut(0);
      draft_from = std::clamp(length, base.draft_length(), base.length());
    }
    draft_slots.skip_to(std::max(draft_slots.size(), length - draft_begin()));
  }
  /// Frees its own draft KV for tokens whose draft KV the cache now holds.
  void yield_draft() noexcept {
    if (draft_from < 0) return;
    const std::int32_t has = base.draft_length();
    if (has > draft_from) {
      draft_slots.drop_front(std::min(has - draft_from, draft_slots.size()));
      draft_from = has;
    }
    if (has == base.length()) draft_from = -1;
  }
  /// Becomes a twin of a text, without its KV. It has no tokens yet.
  void take_text(const SequenceState& other) {
    tokens = other.tokens;
    counts = other.counts;
    largest_token = other.largest_token;
    steps = other.steps;
    epoch = other.epoch;
  }
  /// Forgets all but the first `length` tokens and their KV, and that of the last one, which the
  /// next pass writes. What it shares stays in the tree.
  void cut(std::int32_t length) {
    const std::int32_t kept = std::max(0, length - 1);
    target_slots.cut(std::max(0, kept - base.length()));
    cut_draft(kept < base.length() ? 0 : kept);
    if (kept < base.length()) base.rewind(kept);
    if (length >= this->length()) return;
    while (this->length() > length) {
      counts.remove(tokens.back());
      if (new_counts) new_counts.remove(tokens.back());
      tokens.pop_back();
    }
    largest_token = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  }

  /// Forgets the draft's own KV of all but the first `length` tokens.
  void cut_draft(std::int32_t length) {
    draft_slots.cut(std::max(0, length - draft_begin()));
    if (length <= draft_from) draft_from = -1;
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
    // A step that failed may have left KV of tokens that it could not append.
    count = std::min(count, length());
    if (base.cache() == nullptr || count <= from) return;
    yield_draft();
    if (draft_from >= 0) {
      // The tree has the draft's KV without gaps.
      if (draft_from <= base.draft_length()) {
        base.fill_draft(draft_slots, draft_from, std::min(draft_slots.size(), from - draft_from));
      } else {
        draft_slots.cut(0);
      }
      draft_from = -1;
      if (base.draft_length() < from) draft_slots.cut(0);
    }
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
    draft_from = -1;
  }
};

}  // namespace coppice
