// Forward passes over a run of consecutive tokens: prefill and catching up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace coppice {

/// Extends a sequence's KV token by token order. Holds scratch memory only.
class PrefixPass {
 public:
  PrefixPass(Model& model, KvPool& pool) : model_(model), pool_(pool) {}

  /// Runs tokens [slots.size(), end) of `tokens` in chunks and appends their slots. Returns
  /// false, with the tokens before still in place, when the pool has too few slots. With
  /// `want_logits`, `logits` receives the last token's logits ([vocab], device, valid until
  /// the model's next pass). At least one token must be missing.
  bool extend(std::span<const TokenId> tokens, std::int32_t end, std::vector<KvSlot>& slots,
              bool want_logits, const float** logits);

 private:
  Model& model_;
  KvPool& pool_;
  AttentionPlan plan_;
  std::vector<VisibleKv> visible_;
  std::vector<std::int32_t> positions_;
};

}  // namespace coppice
