// What ranks of one model say to each other in the middle of a pass: each rank has a slice of
// every layer on a device of its own, and a thread that runs its passes (models/sharded_model.h).
//
// All ranks of a group make the same calls in the same order. Operations are queued as the
// device's own are (kernels/device.h), and recorded with them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coppice {

class RankLink;

/// Ranks of one model that are processes, as one of them sees them.
struct RankGroup {
  int rank = 0;  ///< of this process
  int ranks = 1;
  std::string id;                ///< of Device::new_group_id(), by which GPUs find each other
  std::vector<RankLink*> links;  ///< of rank 0: to all others, by rank; of others: to rank 0
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  /// values[i] becomes the sum of all ranks' values[i], the same bits on every rank and in every
  /// run. Values of f32, in the device's memory.
  virtual void sum(float* values, std::int64_t count) = 0;
  /// Puts the columns of all ranks side by side on rank 0: all [rows, sum of widths] gets rank r's
  /// part [rows, widths[r]] behind those of the ranks before it. On rank 0 `staged` has room for
  /// the other ranks' parts; both are ignored elsewhere. None of them overlap.
  virtual void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows,
                              float* staged, float* all) = 0;

  /// From any thread: this rank gives up. Then all ranks' operations throw Error(failure), also
  /// those that wait now, and go on to do so.
  virtual void abort(const std::string& why) noexcept = 0;
};

}  // namespace coppice
