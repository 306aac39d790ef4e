// An item plan on a set of inputs.
#pragma once

#include <functional>

#include "bench/timing.h"
#include "input_sets.h"
#include "item_kernel.h"

namespace coppice::bench {

class ItemAttention {
 public:
  ItemAttention(ItemPlan plan, const InputSets& inputs, cudaStream_t stream);

  const ItemPlan& plan() const { return plan_; }
  /// Queues one layer's attention; the output goes to InputSets::out().
  void queue(std::int32_t set) const;

 private:
  ItemPlan plan_;
  const InputSets& inputs_;
  cudaStream_t stream_;
  DeviceArray<Item> items_;
  DeviceArray<KvSlot> slots_;
  DeviceArray<std::uint64_t> masks_;
  DeviceArray<std::int32_t> partials_begin_, partials_;
  DeviceArray<float> partial_out_, partial_lse_;
};

struct CutResult {
  CutLength cut = 0;
  Timing timing;
  double error = 0.0;
  double group_kv_bytes = 0.0;
  double block_kv_bytes = 0.0;
};

using MakePlan = std::function<ItemPlan(const Workload& work, CutLength cut)>;

/// One cut, timed and checked.
CutResult run_cut(const InputSets& inputs, const MakePlan& make_plan, CutLength cut,
                  std::int32_t samples, cudaStream_t stream);
/// The one of `cuts` that a short measurement found best, so that none of the ways of cutting is
/// compared at a length that does not suit it.
CutResult run_best_cut(const InputSets& inputs, const MakePlan& make_plan,
                       const std::vector<CutLength>& cuts, std::int32_t samples,
                       cudaStream_t stream);

}  // namespace coppice::bench
