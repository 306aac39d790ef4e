// An AttentionPlan (kernels/attention_plan.h) as work items of a GPU: what a pass runs that asks
// for another division of its attention than flatten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_plan.h"
#include "kernels/cuda/attention/flatten_plan.h"

namespace coppice {

/// Packed rows over a run of the flattened tokens, for each KV head. Rows are packed as in
/// flatten_plan.h, and tokens are places of that list.
struct ListedItem {
  IndexRange rows;
  IndexRange tokens;
  /// The partial result of query q and head h is (q + partial_shift) * heads + h.
  std::int32_t partial_shift = 0;
};

/// A list in device memory: what follows it lies behind it, in this order.
struct ItemListHead {
  std::int32_t items = 0;    ///< ListedItem each
  std::int32_t queries = 0;  ///< partial results of query q: begins[q] to begins[q + 1], so
                             ///< queries + 1 int32, and then the partial results' numbers

  COPPICE_HOST_DEVICE const ListedItem* item() const {
    return reinterpret_cast<const ListedItem*>(this + 1);
  }
  COPPICE_HOST_DEVICE const std::int32_t* begins() const {
    return reinterpret_cast<const std::int32_t*>(item() + items);
  }
  COPPICE_HOST_DEVICE const std::int32_t* partials() const { return begins() + queries + 1; }
};

/// Keeps its memory from pass to pass.
class ItemList {
 public:
  /// `kv`: all segments of a pass, prefix before tail. Throws as AttentionPlan does.
  void assign(std::span<const KvSegment> kv, std::int32_t rows, std::int32_t group,
              AttentionDivision division);

  /// Longest first.
  std::span<const ListedItem> items() const { return items_; }
  std::int32_t tile_rows() const { return tile_rows_; }
  /// Partial results of a head.
  std::int32_t partials() const { return plan_.partials; }
  std::size_t bytes() const;
  /// Writes head and list to bytes() bytes.
  void write(std::byte* to) const;

 private:
  AttentionPlan plan_;
  std::vector<std::int32_t> places_;  ///< by token of the plan
  std::vector<ListedItem> items_;
  std::int32_t tile_rows_ = narrow_row_tile;
};

}  // namespace coppice
