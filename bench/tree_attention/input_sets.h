// Operands of one layer's attention, as many times as defeat the cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bench/device_array.h"
#include "workload.h"

namespace coppice::bench {

/// Sets of equal shape whose values differ; queries, keys and values are standard normal. The
/// sets' pools are the layers of one KvLayout, so that all share one plan, as a pass's layers do.
class InputSets {
 public:
  /// As many sets as hold `rotated_bytes` of keys and values, at least two.
  InputSets(const Workload& work, double rotated_bytes, cudaStream_t stream);

  const Workload& work() const { return work_; }
  std::int32_t sets() const { return sets_; }
  std::int32_t padded_rows() const { return padded_rows_; }
  KvLayout layout() const { return work_.layout(sets_); }
  std::int64_t q_stride() const { return std::int64_t{work_.cell.heads} * work_.cell.head_dim; }
  AttentionRule rule() const;

  const void* keys() const { return keys_.data(); }
  const void* values() const { return values_.data(); }
  /// As rope_write_kv() leaves it: heads lie head_dim floats apart.
  const void* q(std::int32_t set) const { return q_.data() + 2 * row_elements(set); }
  /// [padded_rows, heads, head_dim] bf16.
  void* out(std::int32_t set) const { return out_.data() + row_elements(set); }
  /// Makes all output NaN.
  void poison_output() const;

  /// Relative error ||out - exact|| / ||exact|| of the worst among sampled (query, head) of a
  /// set, the exact output being computed in double from the set's own values.
  /// Infinite if any output of the set is not finite. Waits for the device.
  double error(std::int32_t set, std::uint32_t seed) const;

 private:
  std::size_t row_elements(std::int32_t set) const {
    return static_cast<std::size_t>(set) * static_cast<std::size_t>(padded_rows_ * q_stride());
  }
  std::vector<std::uint16_t> head_of_pool(const DeviceArray<std::uint16_t>& pool, std::int32_t set,
                                          std::int32_t kv_head) const;

  const Workload& work_;
  std::int32_t sets_;
  std::int32_t padded_rows_;
  DeviceArray<std::uint16_t> keys_, values_, q_, out_;
};

}  // namespace coppice::bench
