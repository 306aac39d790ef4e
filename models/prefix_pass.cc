#include "models/prefix_pass.h"

#include <algorithm>

namespace coppice {

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end,
                        std::vector<KvSlot>& slots, std::int32_t& logit_rows, const float** logits,
                        PassTail* tail) {
  const std::int32_t most = model_.options().max_rows;
  while (static_cast<std::int32_t>(slots.size()) < end) {
    const auto begin = static_cast<std::int32_t>(slots.size());
    const std::int32_t rows = std::min(most, end - begin);
    // So that nothing but the pass itself can fail once `slots` holds more than it did.
    tail_.reserve(static_cast<std::size_t>(rows));
    positions_.reserve(static_cast<std::size_t>(rows));
    logit_rows_.reserve(static_cast<std::size_t>(rows));
    slots.resize(static_cast<std::size_t>(begin + rows));
    const std::span<KvSlot> fresh(slots.data() + begin, static_cast<std::size_t>(rows));
    if (!pool_.take(fresh)) {
      slots.resize(static_cast<std::size_t>(begin));
      return false;
    }
    tail_.clear();
    positions_.clear();
    for (std::int32_t i = 0; i < rows; ++i) {
      tail_.push_back({slots[static_cast<std::size_t>(begin + i)], i, rows});
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
    batch.prefix = std::span<const KvSlot>(slots).first(static_cast<std::size_t>(begin));
    batch.tail = tail_;
    batch.logit_rows = logit_rows_;
    const float* result = nullptr;
    try {
      result = model_.forward(batch, pool_, begin + rows == end ? tail : nullptr);
    } catch (...) {
      // Slots without KV must not stay with the sequence.
      pool_.give_back(fresh);
      slots.resize(static_cast<std::size_t>(begin));
      throw;
    }
    if (logits != nullptr) *logits = result;
  }
  return true;
}

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end,
                        std::vector<KvSlot>& slots) {
  std::int32_t none = 0;
  return extend(tokens, end, slots, none, nullptr);
}

}  // namespace coppice
