#include "kernels/cuda/attention/range_plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/attention/box_order.h"
#include "kernels/window.h"

namespace coppice {
namespace {

constexpr std::int32_t largest_gang = 12;
// One text. In KV tokens: what a piece costs besides its own, less with half KV tiles and one row
// tile, and what joining costs.
constexpr std::int64_t piece_tokens = 384, half_piece_tokens = 352;
constexpr std::int64_t join_tokens = 384;
// How many times longer ranges take where gangs do not share what they read, less one: 1 / this.
constexpr std::int64_t shared_reads = 8;

/// Several texts: what a block takes, in ps. Least squares over the divisions that
/// bench/tree_attention (part divisions) tries in its cells on an H200; then pieces of row tiles of
/// 16 and 64, tokens of 64x64 and wide joins by moments of templates, which have few tiles a block;
/// and tokens of wide row tiles that leave KV tiles out so that the fastest tiles are chosen there.
struct TileCosts {
  std::int64_t token, masked;  ///< of a KV token its products, and what it takes more if it is one
                               ///< text's alone
  std::int64_t piece;
};
constexpr TileCosts costs_of(RangeTiles tiles, bool leaves_out) {
  const bool whole = tiles.tokens == range_tile_tokens;
  if (tiles.rows == range_narrow_tile) return {7550, 1150, 3790000};
  if (tiles.rows == range_half_tile) {
    return whole ? TileCosts{7340, 1440, 4380000} : TileCosts{13330, 7130, 3500000};
  }
  if (!whole) return {16330, 5360, 4350000};
  return leaves_out ? TileCosts{12850, 2000, 5120000} : TileCosts{12350, 3750, 5120000};
}
/// If they read next to nothing together, so that memory bounds them.
constexpr TileCosts costs_apart(RangeTiles tiles) {
  const std::int64_t token = tiles.rows == range_narrow_tile ? 15200
                             : tiles.rows == range_half_tile ? 17480
                                                             : 19760;
  return {tiles.tokens == range_tile_tokens ? token : token * 11 / 10, 0,
          tiles.rows == range_narrow_tile ? 730000 : 1950000};
}
constexpr std::int64_t cached_token = 6350;  ///< to read it from the cache
constexpr std::int64_t fresh_token = 8290;   ///< and what it takes more from memory
/// Share of all blocks, in thousandths: further ones read no faster, from the cache or from memory.
constexpr std::int64_t reading_blocks = 900;
constexpr std::int64_t shared_unit_cost = 900000, contributor_cost = 84000;
constexpr std::int64_t wide_join = 170;  ///< a wide row tile's, in hundredths: results are larger
/// As memory bounds texts apart, more blocks for a unit gain little, and each has a piece to join.
constexpr std::int64_t apart_join_cost = 15600000;
constexpr std::int64_t shared_reads_of_texts = 33;

/// Skipping pays if, on average over both halves, one KV tile in 10 is skipped.
constexpr std::int64_t least_left_out = 10;

/// Segments of fewer tokens are not worth what is left out before them.
constexpr std::int32_t least_aligned = 64;
constexpr std::int32_t any_place = -1;
/// Whether a segment has its slots where they can be copied at once.
bool is_aligned(const KvSegment& segment) {
  return is_boxed(segment) || (segment.former && std::ssize(segment.slots) >= least_aligned);
}
/// Whether it has to begin a run for that.
bool begins_run(const KvSegment& segment, bool after_boxes) {
  return is_aligned(segment) && !(after_boxes && is_boxed(segment));
}
/// As many may begin in a row tile for their boxes' sake: others begin as intervals of rows change.
constexpr std::int64_t aligned_runs = 28;

/// A row tile's runs while they are found: `end` has where they end in the tail, `first` which
/// place of a box they want to begin at.
void begin_run(RowTile& runs, std::int32_t& count, std::int32_t at, std::int32_t box_place) {
  if (count == RowTile::most_runs) {
    std::int32_t closest = count - 1;
    std::int32_t least = at - runs.end[closest];
    for (std::int32_t i = count - 2; i >= 0; --i) {
      const std::int32_t apart = runs.begin[i + 1] - runs.end[i];
      if (apart < least) {
        least = apart;
        closest = i;
      }
    }
    if (closest == count - 1) return;  // the last run goes on
    std::copy(runs.begin + closest + 2, runs.begin + count, runs.begin + closest + 1);
    std::copy(runs.first + closest + 2, runs.first + count, runs.first + closest + 1);
    std::copy(runs.end + closest + 1, runs.end + count, runs.end + closest);
    --count;
  }
  runs.begin[count] = at;
  runs.first[count++] = box_place;
}

}  // namespace

// Cuts the units of `plan`, whose sizes are set, and sets the rest. Returns what that is thought to
// cost: in ps, or, of one text, in thousandths of a KV token's time.
std::int64_t RangePlanner::cut(const RangeWork& work, RangePlan plan,
                               std::span<const RowTile> tiles, std::int32_t blocks,
                               RangeShares& result) {
  const auto row_tiles = static_cast<std::int32_t>(tiles.size());
  const std::int32_t kv_heads = plan.kv_heads;
  plan.row_tiles = row_tiles;
  lengths_.clear();
  for (const RowTile& tile : tiles) lengths_.push_back(plan.tiles_of(tile));
  const std::int32_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  const auto group_tiles = [&](std::int32_t gang, std::int32_t row_group) {
    const auto first = lengths_.begin() + row_group * gang;
    return *std::max_element(first, first + std::min(gang, row_tiles - row_group * gang));
  };

  // Row tiles of several texts read keys of their own, unless texts have more rows than a tile or
  // share what comes before them.
  const bool several = texts_.size() > 1;
  std::int64_t own = 0, all = work.prefix;
  for (const RowTile& tile : tiles) own += tile.seen();
  for (std::size_t i = 0; i < work.tail.size(); ++i) all += std::ssize(work.near(i).slots);
  const std::int64_t read = std::max<std::int64_t>(own + std::int64_t{row_tiles} * work.prefix, 1);
  const bool leaves_out = several && halves_leave_out(plan.tiles, work.window_or_cap) &&
                          left_out(plan, tiles) * least_left_out >= 2 * read;
  const bool apart = several && work.prefix == 0 && read < all * 5 / 4;
  const TileCosts costs = apart ? costs_apart(plan.tiles) : costs_of(plan.tiles, leaves_out);
  const std::int64_t multiplied = costs.token + costs.masked * own / read;
  const std::int64_t copied = cached_token + fresh_token * std::min(all, read) / read;
  const auto cost_of_texts = [&](std::int64_t range, std::int64_t pieces, std::int64_t contributors,
                                 std::int64_t reading) {
    const std::int64_t token =
        apart ? multiplied
              : std::max(copied * std::max(reading, reading_blocks) / 1000, multiplied);
    const std::int64_t size = plan.tiles.rows == range_wide_tile ? wide_join : 100;
    const std::int64_t join =
        apart ? apart_join_cost : (shared_unit_cost + contributors * contributor_cost) * size / 100;
    return range * plan.tiles.tokens * token + pieces * costs.piece + (contributors > 1 ? join : 0);
  };
  // Where several share no prefix, any of it.
  const std::int64_t shared = work.prefix > 0 ? read - own : read;
  // One text's half tiles take a little more time per token; where row tiles share what is read,
  // products bound them, and more.
  const bool half = plan.tiles.tokens == range_half_tokens;
  const std::int64_t tile_cost = plan.tiles.tokens * (!half ? 1000 : row_tiles == 1 ? 1030 : 1180);
  const std::int64_t piece_cost =
      1000 * (half && row_tiles == 1 ? half_piece_tokens : piece_tokens);
  // The least time of a block; among equals the largest gang.
  std::int64_t least_cost = -1;
  bool equal_units = true;
  const auto consider = [&](std::int64_t range, std::int64_t pieces, std::int64_t contributors,
                            bool equal, std::int32_t gang, std::int64_t gangs) {
    // Without gangs what row tiles share is read from memory for every one of them.
    const std::int64_t alone = gang == 1 && row_tiles > 1 && !apart ? range : 0;
    const std::int64_t cost =
        several ? cost_of_texts(range + alone * shared / (read * shared_reads_of_texts), pieces,
                                contributors, 1000 * gang * gangs / blocks)
                : (range + alone / shared_reads) * tile_cost + pieces * piece_cost +
                      (contributors > 1 ? 1000 * join_tokens : 0);
    if (least_cost >= 0 && cost >= least_cost) return;
    least_cost = cost;
    equal_units = equal;
    plan.gang = gang;
    plan.row_groups = static_cast<std::int32_t>(ceil_div(row_tiles, gang));
    plan.gangs = static_cast<std::int32_t>(gangs);
  };
  const std::int32_t most_gang = work.asked_gang > 0
                                     ? std::min({row_tiles, work.asked_gang, blocks})
                                 : apart ? 1
                                         : std::min({row_tiles, largest_gang, blocks});
  const std::int32_t least_gang = work.asked_gang > 0 ? most_gang : 1;
  for (std::int32_t gang = most_gang; gang >= least_gang; --gang) {
    const std::int64_t row_groups = ceil_div(row_tiles, gang);
    const std::int64_t units = kv_heads * row_groups;
    // All units counted as long as the longest. With fewer gangs, ranges may have parts of fewer
    // units: with gangs * n = units * m in lowest terms, ranges of n / m units begin at multiples
    // of 1 / m.
    const std::int64_t most = std::min<std::int64_t>(blocks / gang, units * longest);
    const std::int64_t aligned = most / units * units;
    const std::int64_t fewest = most - most / 8;
    const std::int64_t asked = std::min<std::int64_t>(most, work.asked_gangs);
    for (std::int64_t gangs = asked > 0 ? asked : most; gangs > 0;
         gangs = asked > 0         ? 0
                 : gangs > fewest  ? gangs - 1
                 : gangs > aligned ? aligned
                 : gangs > units   ? units  // whole ones, with nothing to join
                                   : 0) {
      const std::int64_t divisor = std::gcd(units, gangs);
      const std::int64_t n = units / divisor;
      const std::int64_t m = gangs / divisor;
      const std::int64_t pieces = (n + m - 1 + m - 1) / m;
      const std::int64_t contributors = m == 1 ? 1 : std::max<std::int64_t>(2, ceil_div(m, n));
      consider(ceil_div(units * longest, gangs), pieces, contributors, true, gang, gangs);
    }
    // Each as long as it is: ranges begin anywhere.
    std::int64_t sum = 0;
    for (std::int32_t i = 0; i < row_groups; ++i) sum += kv_heads * group_tiles(gang, i);
    if (sum == units * longest) continue;
    const std::int64_t gangs = std::min<std::int64_t>(asked > 0 ? asked : blocks / gang, sum);
    const std::int64_t pieces = ceil_div(units, gangs) + 1;
    const std::int64_t contributors = std::max<std::int64_t>(2, ceil_div(gangs, units));
    consider(ceil_div(sum, gangs), pieces, contributors, false, gang, gangs);
  }

  result.plan = plan;
  result.leaves_out = leaves_out;
  result.unit_ends.clear();
  std::int32_t end = 0;
  for (std::int32_t i = 0; i < plan.row_groups; ++i) {
    end += equal_units ? longest : group_tiles(plan.gang, i);
    result.unit_ends.push_back(end);
  }
  return least_cost;
}

// Counts the KV tiles that the other half can skip in a run that only one half sees: all but about
// half a tile at each end.
void RangePlanner::LeftOut::add(Halves seen_by, std::int32_t tokens) {
  if (seen_by != last) stretch = 0;
  last = seen_by;
  if (seen_by == Halves::both) return;
  const auto grow = [&](std::int32_t& sum, std::int32_t tile_tokens) {
    sum += std::max(stretch + tokens - tile_tokens, 0) - std::max(stretch - tile_tokens, 0);
  };
  grow(of_half_tiles, range_half_tokens);
  grow(of_whole_tiles, range_tile_tokens);
  stretch += tokens;
}

// Tokens in KV tiles that halves leave out, of both halves and all row tiles together.
std::int64_t RangePlanner::left_out(const RangePlan& plan, std::span<const RowTile> tiles) const {
  std::int64_t left = 0;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const RowTile& tile = tiles[t];
    if (tile.rows.end - tile.rows.begin <= range_half_tile) {  // nobody is in the upper half
      left += plan.prefix - tile.prefix_begin + tile.seen();
    } else {
      left += plan.tiles.tokens == range_half_tokens ? left_out_[t].of_half_tiles
                                                     : left_out_[t].of_whole_tiles;
    }
  }
  return left;
}

// A text's rows see nothing of the tail that other rows see; texts that share some of it count as
// one, and begin at joints. In depth-first order intervals begin in ascending order.
void RangePlanner::find_texts(const RangeWork& work) {
  texts_.clear();
  joints_.clear();
  IndexRange text;
  for (const KvSegment& segment : work.by_row.empty() ? work.tail : work.by_row) {
    const IndexRange seen_by = intersection({segment.q_begin, segment.q_end}, {0, work.rows});
    if (seen_by.empty() || segment.slots.empty()) continue;
    if (segment.former && (joints_.empty() || joints_.back() < seen_by.begin)) {
      joints_.push_back(seen_by.begin);
    }
    if (seen_by.begin >= text.end) {
      if (!text.empty()) texts_.push_back({text.begin, seen_by.begin});
      text = {text.empty() ? 0 : seen_by.begin, seen_by.end};
    }
    text.end = std::max(text.end, seen_by.end);
  }
  texts_.push_back({text.empty() ? 0 : text.begin, work.rows});
  std::int64_t aligned = 1;
  bool after_boxes = false;
  for (const KvSegment& segment : work.tail) {
    if (begins_run(segment, after_boxes)) ++aligned;
    after_boxes = is_boxed(segment);
  }
  const std::int64_t fitting = aligned_runs * std::ssize(texts_) / aligned;
  most_texts_ = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(fitting, RowTile::most_runs, range_wide_tile));
  // What a window leaves out before each text ends a run, and so do the rests behind all boxes.
  if (work.window > 0) most_texts_ = static_cast<std::int32_t>(aligned_runs);
}

// Writes the rows of tiles of at most `tile_rows` packed rows. `most_texts`: of whole texts where
// they fit, at most so many; 0: full ones. Returns how many there are; 0: more than there is room
// for.
std::int32_t RangePlanner::cut_rows(const RangeWork& work, std::int32_t tile_rows,
                                    std::int32_t most_texts, std::span<RowTile> tiles) const {
  std::size_t count = 0;
  const auto add = [&](IndexRange rows) {
    if (count < tiles.size()) tiles[count].rows = rows;
    ++count;
  };
  if (most_texts > 0) {
    const std::int32_t room = tile_rows / work.group;  // queries
    IndexRange open;
    const auto close = [&] {
      if (!open.empty()) add({open.begin * work.group, open.end * work.group});
    };
    std::int32_t count_open = 0;
    for (const IndexRange& text : texts_) {
      if (text.end - open.begin <= room && !open.empty() && count_open < most_texts) {
        open.end = text.end;
        ++count_open;
        continue;
      }
      close();
      count_open = 1;
      for (open = text; open.end - open.begin > room;) {
        const auto later = std::upper_bound(joints_.begin(), joints_.end(), open.begin + room);
        const bool found = later != joints_.begin() && *(later - 1) > open.begin;
        const std::int32_t end = found ? *(later - 1) : open.begin + room;
        add({open.begin * work.group, end * work.group});
        open.begin = end;
      }
    }
    close();
  } else {
    const std::int32_t packed_rows = work.rows * work.group;
    for (std::int32_t begin = 0; begin < packed_rows; begin += tile_rows) {
      add({begin, std::min(begin + tile_rows, packed_rows)});
    }
  }
  return count > tiles.size() ? 0 : static_cast<std::int32_t>(count);
}

// Where row tiles that have their rows lie in the text, and so from where on they see the prefix.
void RangePlanner::place_rows(const RangeWork& work, std::span<RowTile> tiles) const {
  for (RowTile& tile : tiles) {
    tile.positions = {};
    tile.prefix_begin = 0;
    if (work.window == 0) continue;
    const auto queries = work.positions.subspan(
        static_cast<std::size_t>(tile.rows.begin / work.group),
        static_cast<std::size_t>((tile.rows.end - 1) / work.group - tile.rows.begin / work.group) +
            1);
    const auto [nearest, farthest] = std::minmax_element(queries.begin(), queries.end());
    tile.positions = {*nearest, *farthest + 1};
    const std::int64_t unseen = *nearest - window_end(work.prefix_position, work.window) + 1;
    tile.prefix_begin =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(unseen, 0, work.prefix)) / range_box *
        range_box;
  }
}

// Finds the runs of row tiles that have their rows and places. Holes count as seen, but for a
// segment that is nothing else, and so do tokens that are near enough to rows of a later row tile.
void RangePlanner::find_tail_runs(const RangeWork& work, std::span<RowTile> tiles) {
  std::vector<std::int32_t>& counts = run_counts_;
  counts.assign(tiles.size(), 0);
  upper_begin_.assign(tiles.size(), -1);
  left_out_.assign(tiles.size(), {});
  const bool has_halves = std::any_of(tiles.begin(), tiles.end(), [](const RowTile& tile) {
    return tile.rows.end - tile.rows.begin > range_half_tile;
  });
  tiles_of_.assign(static_cast<std::size_t>(work.rows), {});
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const auto tile = static_cast<std::int32_t>(t);
    const std::int32_t last = (tiles[t].rows.end - 1) / work.group;
    for (std::int32_t query = tiles[t].rows.begin / work.group; query <= last; ++query) {
      IndexRange& of_query = tiles_of_[static_cast<std::size_t>(query)];
      of_query = {of_query.empty() ? tile : of_query.begin, tile + 1};
    }
  }
  const auto tiles_that_see = [&](IndexRange seen_by, const KvSegment& segment) {
    const IndexRange queries = intersection(seen_by, {0, work.rows});
    if (queries.empty()) return IndexRange{};
    IndexRange seeing{tiles_of_[static_cast<std::size_t>(queries.begin)].begin,
                      tiles_of_[static_cast<std::size_t>(queries.end - 1)].end};
    if (work.window == 0) return seeing;
    // The last rows are those that lie farthest from a chain's first tokens.
    const auto last = segment.first_position + static_cast<std::int32_t>(segment.slots.size()) - 1;
    const std::int64_t end = window_end(last, work.window);
    while (!seeing.empty() &&
           tiles[static_cast<std::size_t>(seeing.end - 1)].positions.begin >= end) {
      --seeing.end;
    }
    return seeing;
  };
  std::int32_t box_place = any_place;
  const auto begin_runs = [&](std::int32_t first, std::int32_t end, std::int32_t at) {
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(end); ++t) {
      begin_run(tiles[t], counts[t], at, box_place);
    }
  };
  const auto end_runs = [&](std::int32_t first, std::int32_t end, std::int32_t at) {
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(end); ++t) {
      tiles[t].end[counts[t] - 1] = at;
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
  bool after_boxes = false;
  for (std::size_t i = 0; i < work.tail.size(); ++i) {
    const KvSegment& segment = work.near(i);
    if (const auto unseen = std::ssize(work.tail[i].slots) - std::ssize(segment.slots);
        unseen > 0) {
      change({}, at);
      last = {};
      after_boxes = false;
      at += static_cast<std::int32_t>(unseen);
    }
    if (segment.slots.empty()) continue;
    if (segment.q_begin >= 0 && segment.q_begin < work.rows) {
      const IndexRange beginning = tiles_of_[static_cast<std::size_t>(segment.q_begin)];
      for (auto t = static_cast<std::size_t>(beginning.begin);
           t < static_cast<std::size_t>(beginning.end); ++t) {
        const std::int32_t rows_before = segment.q_begin * work.group - tiles[t].rows.begin;
        if (upper_begin_[t] < 0 && rows_before >= range_half_tile) upper_begin_[t] = at;
      }
    }
    const bool hole = segment.slots.size() == 1 && segment.slots.front() < 0;
    const IndexRange seen_by = hole ? IndexRange{} : IndexRange{segment.q_begin, segment.q_end};
    const bool begins = begins_run(segment, after_boxes);
    after_boxes = is_boxed(segment);
    box_place = is_aligned(segment) ? std::max(segment.slots.front(), 0) % range_box : any_place;
    if (begins) change({}, at);  // the text before goes on no further
    if (begins || work.window > 0 || seen_by.begin != last.begin || seen_by.end != last.end) {
      change(tiles_that_see(seen_by, segment), at);
    }
    last = seen_by;
    at += static_cast<std::int32_t>(segment.slots.size());
    if (!has_halves || open.empty()) continue;
    const auto count_halves = [&](std::int32_t tile) {
      const auto t = static_cast<std::size_t>(tile);
      const std::int32_t middle = tiles[t].rows.begin + range_half_tile;
      left_out_[t].add(seen_by.begin * work.group >= middle ? Halves::upper
                       : seen_by.end * work.group <= middle ? Halves::lower
                                                            : Halves::both,
                       static_cast<std::int32_t>(segment.slots.size()));
    };
    // Between the first and the last row tile that see it, both halves do.
    count_halves(open.begin);
    if (open.end - open.begin > 1) count_halves(open.end - 1);
  }
  change({}, at);

  for (std::size_t t = 0; t < tiles.size(); ++t) {
    RowTile& of_tile = tiles[t];
    std::int32_t seen = 0;
    const std::int32_t upper_begin = upper_begin_[t];
    of_tile.lower_tokens = -1;
    for (std::int32_t i = 0; i < RowTile::most_runs; ++i) {
      const bool found = i < counts[t];
      if (!found) of_tile.begin[i] = of_tile.end[i] = 0;
      if (found && of_tile.first[i] != any_place && !aligns_nothing) {
        // Up to the next such place of the unit, where the prefix comes first.
        const std::int32_t apart = of_tile.first[i] - (work.prefix + seen) % range_box;
        seen += apart < 0 ? apart + range_box : apart;
      }
      of_tile.first[i] = seen;
      if (found && of_tile.lower_tokens < 0 && upper_begin >= 0 && upper_begin < of_tile.end[i]) {
        of_tile.lower_tokens = seen + std::max(upper_begin - of_tile.begin[i], 0);
      }
      seen += of_tile.end[i] - of_tile.begin[i];
      of_tile.end[i] = seen;
    }
    if (of_tile.lower_tokens < 0) of_tile.lower_tokens = seen;
  }
}

const RangeShares& RangePlanner::plan(const RangeWork& work, std::int32_t blocks, RangeTiles asked,
                                      std::span<RowTile> tiles) {
  if (work.window_or_cap &&
      (asked.rows == range_narrow_tile || asked.tokens == range_tile_tokens)) {
    asked = {};
  }
  find_texts(work);
  const bool by_text = texts_.size() > 1;
  RangePlan plan;
  plan.rows = work.rows;
  plan.group = work.group;
  plan.kv_heads = work.kv_heads;
  plan.prefix = work.prefix;
  const std::int32_t usual = range_row_tile_for(work.padded_rows, work.group);
  std::int64_t least_cost = -1;
  if (tried_.size() < tiles.size()) tried_.resize(tiles.size());
  const auto room = std::span(tried_).first(tiles.size());
  const auto consider = [&](std::int32_t tile_rows, std::span<RowTile> cut_tiles) {
    place_rows(work, cut_tiles);
    find_tail_runs(work, cut_tiles);
    bool better = false;
    for (const std::int32_t tile_tokens : {range_half_tokens, range_tile_tokens}) {
      if (asked.tokens != 0 && tile_tokens != asked.tokens) continue;
      if (!range_tiles_exist({tile_rows, tile_tokens}, work.window_or_cap)) continue;
      plan.tiles = {tile_rows, tile_tokens};
      const std::int64_t cost = cut(work, plan, cut_tiles, blocks, trial_);
      if (least_cost >= 0 && cost > least_cost) continue;
      least_cost = cost;
      std::swap(trial_, best_);
      better = true;
    }
    if (better) std::copy(cut_tiles.begin(), cut_tiles.end(), tiles.begin());
  };
  for (const std::int32_t tile_rows : range_row_tiles) {
    if (asked.rows != 0 ? tile_rows != asked.rows : tile_rows != usual && !by_text) continue;
    if (work.window_or_cap && !range_tiles_exist({tile_rows, range_half_tokens}, true)) continue;
    const bool whole = by_text && work.group <= tile_rows;
    std::int32_t count = cut_rows(work, tile_rows, whole ? most_texts_ : 0, room);
    // With somewhat fewer texts in each there may be as many units as blocks, or twice that, so
    // that no block is idle or waits for others' results. Behind a prefix there are no more row
    // tiles, but each has about as many texts: a gang takes as long as its longest row tile.
    const std::int32_t step = blocks / work.kv_heads;
    const bool behind = work.prefix > 0;
    if (whole && (behind ? count > 1 : count > 0 && step > 0 && count < 4 * step)) {
      const std::int64_t wanted = behind ? count : ceil_div(count, step) * step;
      const auto texts = static_cast<std::int32_t>(ceil_div(std::ssize(texts_), wanted));
      const std::int32_t found = cut_rows(work, tile_rows, texts, room);
      const bool takes = behind ? found == count : found > 0;
      count = takes ? found : cut_rows(work, tile_rows, most_texts_, room);
    }
    if (count == 0) count = cut_rows(work, tile_rows, 0, room);
    consider(tile_rows, room.first(static_cast<std::size_t>(count)));
  }
  return best_;
}

void RangeShares::write_ranges(std::span<const RowTile> tiles, std::span<BlockRange> ranges) const {
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
      for (RangePiece* const ends : {&of_block.first, &of_block.last}) {
        ends->row_tile += member;
        if (ends->row_tile < plan.row_tiles) {
          ends->rows = tiles[static_cast<std::size_t>(ends->row_tile)].rows;
        }
      }
    }
    if (unit_begins + length() == end && gang + 1 < plan.gangs) {
      unit_begins = end;
      row_group = row_group + 1 == unit_ends.size() ? 0 : row_group + 1;
      ++unit;
    }
  }
}

}  // namespace coppice
