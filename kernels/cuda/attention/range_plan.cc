#include "kernels/cuda/attention/range_plan.h"

#include <algorithm>
#include <numeric>

namespace coppice {
namespace {

constexpr std::int32_t largest_gang = 12;
// In KV tokens: what a piece costs besides its own, and what joining costs.
constexpr std::int64_t piece_tokens = 384;
constexpr std::int64_t join_tokens = 384;
// How many times longer ranges take where gangs do not share what they read, less one: 1 / this.
constexpr std::int64_t shared_reads = 8;

/// A row tile's runs while they are found; `seen_up_to` has where they end in the tail.
void begin_run(TailRuns& runs, std::int32_t& count, std::int32_t at) {
  if (count == TailRuns::most) {
    std::int32_t closest = count - 1;
    std::int32_t least = at - runs.seen_up_to[closest];
    for (std::int32_t i = count - 2; i >= 0; --i) {
      const std::int32_t apart = runs.begin[i + 1] - runs.seen_up_to[i];
      if (apart < least) {
        least = apart;
        closest = i;
      }
    }
    if (closest == count - 1) return;  // the last run goes on
    std::copy(runs.begin + closest + 2, runs.begin + count, runs.begin + closest + 1);
    std::copy(runs.seen_up_to + closest + 1, runs.seen_up_to + count, runs.seen_up_to + closest);
    --count;
  }
  runs.begin[count++] = at;
}

}  // namespace

// Cuts the units of `plan`, whose sizes are set, and sets the rest. Returns what that is thought to
// cost, in units of a KV token's time / 100.
std::int64_t RangePlanner::cut(RangePlan plan, std::span<const TailRuns> runs, std::int32_t blocks,
                               RangeShares& result) {
  const std::int32_t row_tiles = std::max(plan.row_tiles(), 1);
  const std::int32_t kv_heads = plan.kv_heads;
  tiles_.assign(static_cast<std::size_t>(row_tiles), plan.tiles_of(0));
  for (std::size_t t = 0; t < tiles_.size() && t < runs.size(); ++t) {
    tiles_[t] = plan.tiles_of(runs[t].seen());
  }
  const std::int32_t longest = *std::max_element(tiles_.begin(), tiles_.end());
  const auto group_tiles = [&](std::int32_t gang, std::int32_t row_group) {
    const auto first = tiles_.begin() + row_group * gang;
    return *std::max_element(first, first + std::min(gang, row_tiles - row_group * gang));
  };

  const bool half = plan.tile_tokens == range_half_tokens;
  // Half tiles take a little more time per token; where row tiles share what is read, products
  // bound them, and more.
  const std::int64_t tile_cost = plan.tile_tokens * (!half ? 100 : row_tiles > 1 ? 118 : 103);
  // The least time of a block; among equals the largest gang.
  std::int64_t least_cost = -1;
  bool equal_units = true;
  const auto consider = [&](std::int64_t range, std::int64_t pieces, bool joins, bool equal,
                            std::int32_t gang, std::int64_t gangs) {
    // Without gangs keys and values are read from memory for every row tile.
    const std::int64_t reads = gang == 1 && row_tiles > 1 ? range / shared_reads : 0;
    const std::int64_t cost =
        (range + reads) * tile_cost + 100 * (pieces * piece_tokens + (joins ? join_tokens : 0));
    if (least_cost >= 0 && cost >= least_cost) return;
    least_cost = cost;
    equal_units = equal;
    plan.gang = gang;
    plan.row_groups = static_cast<std::int32_t>(ceil_div(row_tiles, gang));
    plan.gangs = static_cast<std::int32_t>(gangs);
  };
  for (std::int32_t gang = std::min({row_tiles, largest_gang, blocks}); gang >= 1; --gang) {
    const std::int64_t row_groups = ceil_div(row_tiles, gang);
    const std::int64_t units = kv_heads * row_groups;
    // All units counted as long as the longest. With fewer gangs, ranges may have parts of fewer
    // units: with gangs * n = units * m in lowest terms, ranges of n / m units begin at multiples
    // of 1 / m.
    const std::int64_t most = std::min<std::int64_t>(blocks / gang, units * longest);
    const std::int64_t aligned = most / units * units;
    const std::int64_t fewest = most - most / 8;
    for (std::int64_t gangs = most; gangs > 0;
         gangs = gangs > fewest    ? gangs - 1
                 : gangs > aligned ? aligned
                 : gangs > units   ? units  // whole ones, with nothing to join
                                   : 0) {
      const std::int64_t divisor = std::gcd(units, gangs);
      const std::int64_t n = units / divisor;
      const std::int64_t m = gangs / divisor;
      const std::int64_t pieces = (n + m - 1 + m - 1) / m;
      consider(ceil_div(units * longest, gangs), pieces, m > 1, true, gang, gangs);
    }
    // Each as long as it is: ranges begin anywhere.
    std::int64_t work = 0;
    for (std::int32_t i = 0; i < row_groups; ++i) work += kv_heads * group_tiles(gang, i);
    if (work == units * longest) continue;
    const std::int64_t gangs = std::min<std::int64_t>(blocks / gang, work);
    const std::int64_t pieces = ceil_div(units, gangs) + 1;
    consider(ceil_div(work, gangs), pieces, true, false, gang, gangs);
  }

  result.plan = plan;
  result.unit_ends.clear();
  std::int32_t end = 0;
  for (std::int32_t i = 0; i < plan.row_groups; ++i) {
    end += equal_units ? longest : group_tiles(plan.gang, i);
    result.unit_ends.push_back(end);
  }
  return least_cost;
}

void RangePlanner::find_tail_runs(std::span<const KvSegment> tail, std::int32_t rows,
                                  std::int32_t group, std::int32_t tile_rows,
                                  std::span<TailRuns> runs) {
  const auto row_tiles = static_cast<std::size_t>(ceil_div(rows * group, tile_rows));
  std::vector<std::int32_t>& counts = run_counts_;
  counts.assign(row_tiles, 0);
  const auto tiles_that_see = [&](IndexRange seen_by) {
    const IndexRange queries = intersection(seen_by, {0, rows});
    if (queries.empty()) return IndexRange{};
    return IndexRange{queries.begin * group / tile_rows, (queries.end * group - 1) / tile_rows + 1};
  };
  const auto begin_runs = [&](std::int32_t first, std::int32_t end, std::int32_t at) {
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(end); ++t) {
      begin_run(runs[t], counts[t], at);
    }
  };
  const auto end_runs = [&](std::int32_t first, std::int32_t end, std::int32_t at) {
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(end); ++t) {
      runs[t].seen_up_to[counts[t] - 1] = at;
    }
  };
  // Row tiles that see the last tokens, those that see these, and what changes between them.
  IndexRange open;
  const auto change = [&](IndexRange now, std::int32_t at) {
    end_runs(open.begin, std::min(open.end, now.begin), at);
    end_runs(std::max(open.begin, now.end), open.end, at);
    begin_runs(now.begin, std::min(now.end, open.begin), at);
    begin_runs(std::max(now.begin, open.end), now.end, at);
    open = now;
  };
  std::int32_t at = 0;
  IndexRange last;
  for (const KvSegment& segment : tail) {
    if (segment.slots.empty()) continue;
    const bool hole = segment.slots.size() == 1 && segment.slots.front() < 0;
    const IndexRange seen_by = hole ? IndexRange{} : IndexRange{segment.q_begin, segment.q_end};
    if (seen_by.begin != last.begin || seen_by.end != last.end) change(tiles_that_see(seen_by), at);
    last = seen_by;
    at += static_cast<std::int32_t>(segment.slots.size());
  }
  change({}, at);

  for (std::size_t t = 0; t < row_tiles; ++t) {
    TailRuns& of_tile = runs[t];
    std::int32_t seen = 0;
    for (std::int32_t i = 0; i < TailRuns::most; ++i) {
      if (i < counts[t]) {
        seen += of_tile.seen_up_to[i] - of_tile.begin[i];
      } else {
        of_tile.begin[i] = 0;
      }
      of_tile.seen_up_to[i] = seen;
    }
  }
}

const RangeShares& RangePlanner::plan(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                                      std::int32_t tile_rows, std::int32_t prefix,
                                      std::span<const TailRuns> runs, std::int32_t blocks,
                                      std::int32_t tile_tokens) {
  RangePlan plan;
  plan.rows = rows;
  plan.group = group;
  plan.kv_heads = kv_heads;
  plan.tile_rows = tile_rows;
  plan.prefix = prefix;
  if (tile_tokens != 0) {
    plan.tile_tokens = tile_tokens;
    cut(plan, runs, blocks, whole_);
    return whole_;
  }
  plan.tile_tokens = range_half_tokens;
  const std::int64_t half_cost = cut(plan, runs, blocks, half_);
  plan.tile_tokens = range_tile_tokens;
  return half_cost < cut(plan, runs, blocks, whole_) ? half_ : whole_;
}

void RangeShares::write_ranges(std::span<BlockRange> ranges) const {
  std::fill(ranges.begin(), ranges.end(), BlockRange{});
  // The unit that the next range begins in.
  std::int32_t unit = 0;
  std::size_t row_group = 0;
  std::int64_t unit_begins = 0;
  const auto length = [&] {
    return unit_ends[row_group] - (row_group == 0 ? 0 : unit_ends[row_group - 1]);
  };
  const auto piece = [&](std::int64_t begin, std::int64_t end) {
    RangePiece of_unit;
    of_unit.kv_head = unit / plan.row_groups;
    of_unit.row_tile = static_cast<std::int32_t>(row_group) * plan.gang;
    of_unit.tile_begin = static_cast<std::int32_t>(begin - unit_begins);
    of_unit.tile_end =
        static_cast<std::int32_t>(std::min<std::int64_t>(end - unit_begins, length()));
    of_unit.first_gang = gang_at(unit_begins);
    of_unit.contributors = gang_at(unit_begins + length() - 1) - of_unit.first_gang + 1;
    return of_unit;
  };
  for (std::int32_t gang = 0; gang < plan.gangs; ++gang) {
    const std::int64_t begin = range_begin(gang);
    const std::int64_t end = range_begin(gang + 1);
    BlockRange range;
    range.gang = gang;
    range.first = range.last = piece(begin, end);
    range.steps = 0;
    while (unit_begins + length() < end) {
      unit_begins += length();
      row_group = row_group + 1 == unit_ends.size() ? 0 : row_group + 1;
      ++unit;
      ++range.steps;
    }
    if (range.steps > 0) range.last = piece(unit_begins, end);
    for (std::int32_t member = 0; member < plan.gang; ++member) {
      BlockRange& of_block = ranges[static_cast<std::size_t>(gang * plan.gang + member)];
      of_block = range;
      of_block.member = member;
      of_block.first.row_tile += member;
      of_block.last.row_tile += member;
    }
    if (unit_begins + length() == end && gang + 1 < plan.gangs) {
      unit_begins = end;
      row_group = row_group + 1 == unit_ends.size() ? 0 : row_group + 1;
      ++unit;
    }
  }
}

}  // namespace coppice
