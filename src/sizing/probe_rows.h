// Rows of a pass that is run for its time, laid out as a step's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace coppice {

class ProbeRows {
 public:
  explicit ProbeRows(const ModelConfig& config) : vocab_size_(config.vocab_size) {}

  void clear() {
    tokens_.clear();
    positions_.clear();
    write_slots_.clear();
    segments_.clear();
    logit_rows_.clear();
  }
  /// A text behind the others: `slots.size()` rows after the tokens of `prefix`, a bush over one
  /// stem, half of which see each other in a chain, as trees do. The last `logit_rows` of them have
  /// logits. Both spans must outlive the passes.
  void add(std::span<const KvSlot> prefix, std::span<const KvSlot> slots, std::int32_t logit_rows) {
    const auto first = static_cast<std::int32_t>(tokens_.size());
    const auto rows = static_cast<std::int32_t>(slots.size());
    segments_.push_back({prefix, first, first + rows, true, 0});
    write_slots_.insert(write_slots_.end(), slots.begin(), slots.end());
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::int32_t until = r < rows / 2 ? rows : r + 1;
      positions_.push_back(static_cast<std::int32_t>(prefix.size()) + std::min(r, rows / 2));
      segments_.push_back({slots.subspan(static_cast<std::size_t>(r), 1), first + r, first + until,
                           false, positions_.back()});
      tokens_.push_back(static_cast<TokenId>(((first + r) * 37 + 11) % vocab_size_));
      if (r >= rows - logit_rows) logit_rows_.push_back(first + r);
    }
  }
  /// Valid until the next change.
  ForwardBatch batch() const { return {tokens_, positions_, write_slots_, segments_, logit_rows_}; }

 private:
  std::int64_t vocab_size_;
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<KvSlot> write_slots_;
  std::vector<KvSegment> segments_;
};

}  // namespace coppice
