#include "models/prefix_pass.h"

#include <algorithm>

namespace coppice {

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end, KvSlots& slots,
                        std::int32_t& logit_rows, const float** logits, PassTail* tail) {
  const std::int32_t most = model_.options().max_rows;
  while (slots.size() < end) {
    const std::int32_t begin = slots.size();
    const std::int32_t rows = std::min(most, end - begin);
    if (!slots.take(rows)) return false;
    CutBack computed{slots, begin};  // slots without KV must not stay with the text
    const std::span<const KvSlot> prefix = slots.all().first(static_cast<std::size_t>(begin));
    const std::span<const KvSlot> fresh = slots.all().subspan(prefix.size());
    segments_.assign(1, {prefix, 0, rows, true, 0});
    positions_.clear();
    for (std::int32_t i = 0; i < rows; ++i) {
      segments_.push_back(
          {fresh.subspan(static_cast<std::size_t>(i), 1), i, rows, false, begin + i});
      positions_.push_back(begin + i);
    }
    logit_rows_.clear();
    if (begin + rows == end) {
      logit_rows = std::min(logit_rows, rows);
      for (std::int32_t r = rows - logit_rows; r < rows; ++r) logit_rows_.push_back(r);
    }
    ForwardBatch batch;
    batch.tokens = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    batch.positions = positions_;
    batch.write_slots = fresh;
    batch.segments = segments_;
    batch.logit_rows = logit_rows_;
    const float* result = model_.forward(batch, pool_, begin + rows == end ? tail : nullptr);
    computed.length = slots.size();
    if (logits != nullptr) *logits = result;
  }
  return true;
}

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end, KvSlots& slots) {
  std::int32_t none = 0;
  return extend(tokens, end, slots, none, nullptr);
}

}  // namespace coppice
