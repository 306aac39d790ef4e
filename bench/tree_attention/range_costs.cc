#include "range_costs.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace coppice::bench {

double PieceCosts::us(RangeTiles tiles, double tokens) const {
  const auto found = us_.find(tiles);
  if (found == us_.end()) {
    throw_failure(cat("no costs of row tiles of ", tiles.rows, " by ", tiles.tokens, " tokens"));
  }
  std::size_t at = 1;
  while (at + 1 < lengths.size() && tokens > lengths[at]) ++at;
  const double low = found->second[at - 1], high = found->second[at];
  const double share = (tokens - lengths[at - 1]) / (lengths[at] - lengths[at - 1]);
  return low + share * (high - low);
}

std::int32_t RangeDivision::tokens_of(std::int32_t row_tile) const {
  const RowTile& tile = tiles[static_cast<std::size_t>(row_tile)];
  return plan.prefix - tile.prefix_begin + tile.seen();
}

std::vector<std::int32_t> RangeDivision::units() const {
  std::vector<std::int32_t> tokens;
  for (std::int32_t head = 0; head < plan.kv_heads; ++head) {
    for (std::int32_t tile = 0; tile < plan.row_tiles; ++tile) tokens.push_back(tokens_of(tile));
  }
  return tokens;
}

std::vector<std::vector<std::int32_t>> RangeDivision::pieces() const {
  std::vector<std::vector<std::int32_t>> by_block;
  for (const BlockRange& range : ranges) {
    std::vector<std::int32_t>& of_block = by_block.emplace_back();
    RangePiece piece = range.first;
    for (std::int32_t step = 0; step <= range.steps; ++step) {
      if (step > 0) plan.advance(piece, range);
      if (step > 0 && step == range.steps) piece = range.last;
      if (piece.row_tile >= plan.row_tiles) continue;
      const std::int32_t tokens = tokens_of(piece.row_tile);
      const auto at = [&](std::int64_t tile) {
        return static_cast<std::int32_t>(std::min<std::int64_t>(tile * plan.tiles.tokens, tokens));
      };
      const std::int32_t count = at(piece.tile_end) - at(piece.tile_begin);
      if (count > 0) of_block.push_back(count);
    }
  }
  return by_block;
}

double makespan_us(const PieceCosts& costs, const RangeDivision& division) {
  double longest = 0.0;
  for (const std::vector<std::int32_t>& pieces : division.pieces()) {
    double us = 0.0;
    for (const std::int32_t tokens : pieces) us += costs.us(division.plan.tiles, tokens);
    longest = std::max(longest, us);
  }
  return longest;
}

double least_us(const PieceCosts& costs, RangeTiles tiles, std::span<const std::int32_t> units,
                std::int32_t blocks) {
  std::map<std::int32_t, std::int32_t> counts;  // of units, by length
  double low = 0.0, high = 0.0;                 // too little, enough
  for (const std::int32_t unit : units) {
    ++counts[unit];
    high += costs.us(tiles, unit);
  }
  const auto suffices = [&](double us) {
    double sum = 0.0;
    for (const auto& [tokens, count] : counts) {
      const std::int32_t most = std::max(1, (tokens + tiles.tokens - 1) / tiles.tokens);
      std::int32_t parts = 1;
      while (parts < most && costs.us(tiles, static_cast<double>(tokens) / parts) > us) ++parts;
      const double part_us = costs.us(tiles, static_cast<double>(tokens) / parts);
      if (part_us > us) return false;
      sum += count * parts * part_us;
    }
    return sum <= blocks * us;
  };
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (suffices(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace coppice::bench
