// What pieces of work are estimated to take, and the least that any division of it takes, as
// FlashForge has them (its section 5; its tasks are units here, n_q a row tile).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kernels/cuda/attention/range_plan.h"

namespace coppice::bench {

/// C_est(n_q, n) (eq. 6): microseconds of a block over a piece of work while all blocks have one,
/// measured at some lengths and interpolated between them.
class PieceCosts {
 public:
  static constexpr std::array<std::int32_t, 8> lengths = {128,  256,  512,  1024,
                                                          2048, 4096, 8192, 16384};

  /// `us`: by length.
  void set(RangeTiles tiles, const std::array<double, lengths.size()>& us) { us_[tiles] = us; }
  /// Linear in the tokens between two lengths, and beyond the first and the last pair.
  double us(RangeTiles tiles, double tokens) const;

 private:
  std::map<RangeTiles, std::array<double, lengths.size()>> us_;
};

/// A plan as its kernel has it.
struct RangeDivision {
  RangePlan plan;
  std::vector<RowTile> tiles;
  std::vector<BlockRange> ranges;

  /// KV tokens of each unit.
  std::vector<std::int32_t> units() const;
  /// By block, KV tokens of its pieces of units; those of none are left out.
  std::vector<std::vector<std::int32_t>> pieces() const;

 private:
  std::int32_t tokens_of(std::int32_t row_tile) const;
};

/// What the slowest block takes (eq. 3).
double makespan_us(const PieceCosts& costs, const RangeDivision& division);

/// Lower bound of eq. 4: the least L such that units divided evenly, into no more pieces than make
/// each of them take at most L, take `blocks` blocks L in the mean.
double least_us(const PieceCosts& costs, RangeTiles tiles, std::span<const std::int32_t> units,
                std::int32_t blocks);

}  // namespace coppice::bench
