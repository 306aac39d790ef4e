#include "kernels/attention_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace coppice {
namespace {

struct Interval {
  std::int32_t begin, end;
  bool operator==(const Interval&) const = default;
};

/// Overlapping or adjacent: the union of both is one interval.
bool touches(Interval a, Interval b) { return a.begin <= b.end && b.begin <= a.end; }

}  // namespace

void AttentionPlan::assign(std::span<const KvSegment> kv, std::int32_t query_count,
                           AttentionDivision division) {
  flatten(kv, query_count);
  switch (division) {
    case AttentionDivision::flatten: {
      std::int32_t begin = 0;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::int32_t end = text_end_[i];
        texts[i].chunk_begin = static_cast<std::int32_t>(chunks.size());
        group_by_position(begin, end);
        cut_groups(begin, end);
        texts[i].chunk_end = static_cast<std::int32_t>(chunks.size());
        begin = end;
      }
      return list_partials();
    }
    case AttentionDivision::node:
      cut_nodes(std::numeric_limits<std::int32_t>::max());
      break;
    case AttentionDivision::node_chunk:
      cut_nodes(longest_group);
      break;
    case AttentionDivision::subtree: {
      const std::int64_t tokens = std::ssize(slot);
      const std::int64_t parts = (tokens + longest_group - 1) / longest_group;
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto end = static_cast<std::int32_t>(tokens * (part + 1) / parts);
        auto begin = static_cast<std::int32_t>(tokens * part / parts);
        while (begin < end) begin = emit_union(begin, end, longest_group);
      }
      break;
    }
  }
  texts.assign(1, {0, queries, 0, static_cast<std::int32_t>(chunks.size())});
  list_partials();
}

void AttentionPlan::flatten(std::span<const KvSegment> kv, std::int32_t query_count) {
  if (query_count < 0) throw_failure(cat("attention plan: ", query_count, " queries"));
  queries = query_count;
  slot.clear();
  q_begin.clear();
  q_end.clear();
  position.clear();
  chunks.clear();
  texts.clear();
  text_end_.clear();
  std::int32_t seeing = 0;  // the query after the last that sees anything so far
  for (const KvSegment& segment : kv) {
    if (segment.q_begin < 0 || segment.q_end > queries || segment.q_begin > segment.q_end) {
      throw_failure(
          cat("attention plan: KV slot ", segment.slots.empty() ? no_slot : segment.slots.front(),
              " is seen by queries [", segment.q_begin, ", ", segment.q_end, ") of ", queries));
    }
    if (segment.q_begin == segment.q_end) continue;
    if (texts.empty() || segment.q_begin >= seeing) {
      if (!texts.empty()) text_end_.push_back(static_cast<std::int32_t>(slot.size()));
      texts.push_back({segment.q_begin, segment.q_end, 0, 0});
    }
    seeing = texts.back().q_end = std::max(seeing, segment.q_end);
    std::int32_t at = segment.first_position;
    for (const KvSlot s : segment.slots) {
      if (s != no_slot) {
        slot.push_back(s);
        position.push_back(at);
      }
      ++at;
    }
    q_begin.resize(slot.size(), segment.q_begin);
    q_end.resize(slot.size(), segment.q_end);
  }
  if (!texts.empty()) text_end_.push_back(static_cast<std::int32_t>(slot.size()));
}

// Sorts tokens [begin, end), which are a text's, by their group of positions; tokens of a group
// stay in depth-first order. A prefix is sorted already, and only what lies beside it moves.
void AttentionPlan::group_by_position(std::int32_t begin, std::int32_t end) {
  const auto group = [&](std::int32_t t) {
    return position[static_cast<std::size_t>(t)] / position_group;
  };
  std::int32_t sorted = begin;
  while (sorted < end && (sorted == begin || group(sorted) >= group(sorted - 1))) ++sorted;
  if (sorted == end) return;
  std::int32_t first = group(sorted), last = first;
  for (std::int32_t t = sorted; t < end; ++t) {
    first = std::min(first, group(t));
    last = std::max(last, group(t));
  }
  std::int32_t from = sorted;
  while (from > begin && group(from - 1) > first) --from;
  for (std::int32_t t = from; t < sorted; ++t) last = std::max(last, group(t));

  place_.assign(static_cast<std::size_t>(last - first) + 2, 0);
  for (std::int32_t t = from; t < end; ++t)
    ++place_[static_cast<std::size_t>(group(t) - first) + 1];
  for (std::size_t g = 1; g < place_.size(); ++g) place_[g] += place_[g - 1];
  std::vector<std::int32_t>& order = moved_;
  order.resize(static_cast<std::size_t>(end - from) * 2);
  for (std::int32_t t = from; t < end; ++t) {
    order[static_cast<std::size_t>(place_[static_cast<std::size_t>(group(t) - first)]++)] = t;
  }
  const auto count = static_cast<std::size_t>(end - from);
  const auto move = [&](std::vector<std::int32_t>& of) {
    for (std::size_t i = 0; i < count; ++i) {
      order[count + i] = of[static_cast<std::size_t>(order[i])];
    }
    std::copy_n(order.begin() + static_cast<std::ptrdiff_t>(count), count, of.begin() + from);
  };
  move(slot);
  move(q_begin);
  move(q_end);
  move(position);
}

// Chunks of tokens [begin, end), which are a text's by groups of positions. A query sees the tokens
// of its path alone; so a cut where all intervals before have ended takes none of them apart.
void AttentionPlan::cut_groups(std::int32_t begin, std::int32_t end) {
  // Below, a partial result costs as much as the tokens that it saves others from masking.
  constexpr std::int32_t worth_a_chunk = 32;
  const auto group = [&](std::int32_t t) {
    return position[static_cast<std::size_t>(t)] / position_group;
  };
  while (begin < end) {
    std::int32_t group_end = begin + 1;
    while (group_end < end && group(group_end) == group(begin)) ++group_end;
    while (begin < group_end) begin = emit_union(begin, group_end, worth_a_chunk);
  }
}

// A token belongs to the node of the one before if the same queries see it, or all but the first of
// them: a chain without branches.
void AttentionPlan::cut_nodes(std::int32_t chunk_tokens) {
  const auto tokens = static_cast<std::int32_t>(slot.size());
  for (std::int32_t begin = 0, end = 0; begin < tokens; begin = end) {
    for (end = begin + 1; end < tokens; ++end) {
      const auto i = static_cast<std::size_t>(end);
      const std::int32_t first = q_begin[i] - q_begin[i - 1];
      if (q_end[i] != q_end[i - 1] || (first != 0 && first != 1)) break;
    }
    const std::int64_t count = end - begin;
    const std::int64_t parts = (count + chunk_tokens - 1) / chunk_tokens;
    for (std::int64_t part = 0; part < parts; ++part) {
      emit_union(begin + static_cast<std::int32_t>(count * part / parts),
                 begin + static_cast<std::int32_t>(count * (part + 1) / parts), longest_group);
    }
  }
}

// Adds a chunk of the tokens [begin, end), or of as many of them as the queries that see them are
// one interval; or of `apart` at least, where those after are seen by later queries alone. Returns
// where it ends.
std::int32_t AttentionPlan::emit_union(std::int32_t begin, std::int32_t end, std::int32_t apart) {
  const auto interval = [&](std::int32_t t) {
    const auto i = static_cast<std::size_t>(t);
    return Interval{q_begin[i], q_end[i]};
  };
  Interval seen = interval(begin);
  bool full = true;
  std::int32_t t = begin + 1;
  for (; t < end; ++t) {
    const Interval next = interval(t);
    if (next == seen) continue;
    if (!touches(seen, next) || (next.begin >= seen.end && t - begin >= apart)) break;
    full = false;
    seen = {std::min(seen.begin, next.begin), std::max(seen.end, next.end)};
  }
  chunks.push_back({begin, t, seen.begin, seen.end, 0, full});
  return t;
}

void AttentionPlan::list_partials() {
  // Every query of a chunk sees one of its tokens (the union of their intervals has no gap),
  // so each (chunk, query) pair is one partial result.
  partials = 0;
  reduce_begin.assign(static_cast<std::size_t>(queries) + 1, 0);
  for (Chunk& chunk : chunks) {
    chunk.partial = partials;
    partials += chunk.q_end - chunk.q_begin;
    for (std::int32_t q = chunk.q_begin; q < chunk.q_end; ++q) {
      ++reduce_begin[static_cast<std::size_t>(q) + 1];
    }
  }
  for (std::int32_t q = 0; q < queries; ++q) {
    const auto i = static_cast<std::size_t>(q);
    if (reduce_begin[i + 1] == 0) {
      throw_failure(cat("attention plan: query ", q, " of ", queries, " sees no KV token"));
    }
    reduce_begin[i + 1] += reduce_begin[i];
  }
  partial_of.resize(static_cast<std::size_t>(partials));
  for (const Chunk& chunk : chunks) {
    for (std::int32_t q = chunk.q_begin; q < chunk.q_end; ++q) {
      const auto at = static_cast<std::size_t>(reduce_begin[static_cast<std::size_t>(q)]++);
      partial_of[at] = chunk.partial + (q - chunk.q_begin);
    }
  }
  // Filling moved every start to its end, the next query's start: move them back.
  for (std::int32_t q = queries; q > 0; --q) {
    reduce_begin[static_cast<std::size_t>(q)] = reduce_begin[static_cast<std::size_t>(q) - 1];
  }
  reduce_begin[0] = 0;
}

}  // namespace coppice
