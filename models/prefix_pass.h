// Forward passes over a run of consecutive tokens: prefill and catching up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/kv/kv_slots.h"
#include "models/model.h"

namespace coppice {

/// Extends a sequence's KV token by token order. Holds scratch memory only.
class PrefixPass {
 public:
  PrefixPass(Model& model, KvPool& pool) : model_(model), pool_(pool) {}

  /// Runs tokens [slots.size(), end) of `tokens` in chunks and appends their slots. Returns
  /// false, with the tokens before still in place, when the pool has too few slots. At least
  /// one token must be missing. `logits` receives those of the last `logit_rows` tokens, or of
  /// as many as the last chunk holds ([rows, vocab], device, valid until the model's next
  /// pass), and their number is returned in `logit_rows`. `tail` is queued behind the last
  /// chunk.
  bool extend(std::span<const TokenId> tokens, std::int32_t end, KvSlots& slots,
              std::int32_t& logit_rows, const float** logits, PassTail* tail = nullptr);
  /// The same without logits.
  bool extend(std::span<const TokenId> tokens, std::int32_t end, KvSlots& slots);

 private:
  Model& model_;
  KvPool& pool_;
  std::vector<KvSegment> segments_;
  std::vector<std::int32_t> positions_, logit_rows_;
};

}  // namespace coppice
