// Forward passes over a run of consecutive tokens: prefill and catching up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/kv/kv_slots.h"
#include "models/kv/pass_layout.h"
#include "models/model.h"

namespace coppice {

/// Extends a text's KV token by token order. Holds scratch memory only.
class PrefixPass {
 public:
  PrefixPass(Model& model, KvPool& pool, PassLayout::Of of) : model_(model), pool_(pool), of_(of) {}

  /// Runs the tokens of `tokens` up to `end` of which neither `base`, where it shares, nor `slots`,
  /// which begin with token `first`, have KV, in chunks, and appends their slots. Returns false,
  /// with the tokens before still in place, when the pool has too few slots. At least one token
  /// must be missing.
  bool extend(std::span<const TokenId> tokens, std::int32_t end, const CacheRef& base,
              KvSlots& slots, std::int32_t first);

 private:
  Model& model_;
  KvPool& pool_;
  const PassLayout::Of of_;
  PassLayout layout_;
  std::vector<KvSegment> segments_;
  std::vector<std::int32_t> positions_;
};

}  // namespace coppice
