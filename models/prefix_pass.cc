#include "models/prefix_pass.h"

#include <algorithm>

namespace coppice {

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end,
                        std::vector<KvSlot>& slots, bool want_logits, const float** logits) {
  const std::int32_t most = model_.options().max_rows;
  while (static_cast<std::int32_t>(slots.size()) < end) {
    const auto begin = static_cast<std::int32_t>(slots.size());
    const std::int32_t rows = std::min(most, end - begin);
    slots.resize(static_cast<std::size_t>(begin + rows));
    const std::span<KvSlot> fresh(slots.data() + begin, static_cast<std::size_t>(rows));
    if (!pool_.take(fresh)) {
      slots.resize(static_cast<std::size_t>(begin));
      return false;
    }
    visible_.clear();
    for (std::int32_t i = 0; i < begin; ++i) {
      visible_.push_back({slots[static_cast<std::size_t>(i)], 0, rows});
    }
    positions_.clear();
    for (std::int32_t i = 0; i < rows; ++i) {
      visible_.push_back({slots[static_cast<std::size_t>(begin + i)], i, rows});
      positions_.push_back(begin + i);
    }
    plan_.assign(visible_, rows,
                 choose_chunk_tokens(begin + rows, model_.config().kv_heads,
                                     model_.device().threads()));
    const std::int32_t last_row = rows - 1;
    const bool last_chunk = begin + rows == end;
    ForwardBatch batch;
    batch.tokens = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    batch.positions = positions_;
    batch.write_slots = fresh;
    batch.attention = &plan_;
    if (want_logits && last_chunk) batch.logit_rows = {&last_row, 1};
    const float* result = model_.forward(batch, pool_);
    if (logits != nullptr) *logits = result;
  }
  return true;
}

}  // namespace coppice
