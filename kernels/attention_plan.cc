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
                           std::int32_t chunk_tokens) {
  if (chunk_tokens < 1) {
    throw_failure(cat("attention plan: chunks of ", chunk_tokens, " tokens; needs at least 1"));
  }
  flatten(kv, query_count);
  std::int32_t begin = 0;
  for (const std::int32_t end : text_end) {
    cut(begin, end, chunk_tokens);
    begin = end;
  }
  list_partials();
}

void AttentionPlan::assign(std::span<const KvSegment> kv, std::int32_t query_count,
                           std::int32_t kv_heads, int workers) {
  flatten(kv, query_count);
  std::int32_t begin = 0;
  for (const std::int32_t end : text_end) {
    cut(begin, end, choose_chunk_tokens(end - begin, kv_heads, workers));
    begin = end;
  }
  list_partials();
}

void AttentionPlan::assign(std::span<const KvSegment> kv, std::int32_t query_count,
                           AttentionDivision division) {
  flatten(kv, query_count);
  if (division == AttentionDivision::node || division == AttentionDivision::node_chunk) {
    cut_nodes(division == AttentionDivision::node ? std::numeric_limits<std::int32_t>::max()
                                                  : longest_group);
  } else {
    const std::int64_t tokens = std::ssize(slot);
    const std::int64_t parts = (tokens + longest_group - 1) / longest_group;
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto end = static_cast<std::int32_t>(tokens * (part + 1) / parts);
      auto begin = static_cast<std::int32_t>(tokens * part / parts);
      while (begin < end) begin = emit_union(begin, end);
    }
  }
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
  text_end.clear();
  std::int32_t seeing = 0;  // the query after the last that sees anything so far
  for (const KvSegment& segment : kv) {
    if (segment.q_begin < 0 || segment.q_end > queries || segment.q_begin > segment.q_end) {
      throw_failure(
          cat("attention plan: KV slot ", segment.slots.empty() ? no_slot : segment.slots.front(),
              " is seen by queries [", segment.q_begin, ", ", segment.q_end, ") of ", queries));
    }
    if (segment.q_begin == segment.q_end) continue;
    if (!slot.empty() && segment.q_begin >= seeing) {
      text_end.push_back(static_cast<std::int32_t>(slot.size()));
    }
    seeing = std::max(seeing, segment.q_end);
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
  if (!slot.empty()) text_end.push_back(static_cast<std::int32_t>(slot.size()));
}

// Of one text: tokens [begin, tokens) of the flattened list.
void AttentionPlan::cut(std::int32_t begin, std::int32_t tokens, std::int32_t chunk_tokens) {
  const auto interval = [&](std::int32_t t) {
    const auto i = static_cast<std::size_t>(t);
    return Interval{q_begin[i], q_end[i]};
  };
  const auto run_end = [&](std::int32_t t) {
    std::int32_t end = t + 1;
    while (end < tokens && interval(end) == interval(t)) ++end;
    return end;
  };
  // A run of equal intervals is worth chunks of its own from half a chunk on.
  const std::int32_t long_run = std::max(1, chunk_tokens / 2);
  const auto emit = [&](std::int32_t first, std::int32_t end, Interval seen, bool full) {
    chunks.push_back({first, end, seen.begin, seen.end, 0, full});
  };

  while (begin < tokens) {
    const std::int32_t end = run_end(begin);
    if (end - begin >= long_run) {
      const std::int32_t parts = (end - begin + chunk_tokens - 1) / chunk_tokens;
      for (std::int32_t p = 0; p < parts; ++p) {
        const auto at = [&](std::int32_t i) {
          return begin + static_cast<std::int32_t>(std::int64_t{end - begin} * i / parts);
        };
        emit(at(p), at(p + 1), interval(begin), true);
      }
      begin = end;
      continue;
    }
    // Short runs share chunks. The span up to the next long run is cut evenly, and also
    // wherever the queries of a chunk would not be one interval.
    std::int32_t span_end = end;
    while (span_end < tokens) {
      const std::int32_t next_end = run_end(span_end);
      if (next_end - span_end >= long_run) break;
      span_end = next_end;
    }
    const std::int32_t span = span_end - begin;
    const std::int32_t parts = (span + chunk_tokens - 1) / chunk_tokens;
    const std::int32_t even = (span + parts - 1) / parts;
    while (begin < span_end) begin = emit_union(begin, std::min(begin + even, span_end));
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
                 begin + static_cast<std::int32_t>(count * (part + 1) / parts));
    }
  }
}

// Adds a chunk of the tokens [begin, end), or of as many of them as the queries that see them are
// one interval. Returns where it ends.
std::int32_t AttentionPlan::emit_union(std::int32_t begin, std::int32_t end) {
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
    if (!touches(seen, next)) break;
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

std::int32_t choose_chunk_tokens(std::int64_t kv_tokens, std::int32_t kv_heads, int workers) {
  // Keys and values of 256 tokens of 128 f32 are 256 KiB: they stay in a core's second-level
  // cache while all query rows pass over them. Below 32 tokens a partial result (a row of
  // output and its reduction) costs as much as the tokens it stands for.
  constexpr std::int64_t longest = 256, shortest = 32, round = 16;
  if (workers <= 1 || kv_heads % workers == 0) return longest;
  const std::int64_t items = 2 * std::int64_t{workers};  // two each, to even out masked chunks
  const std::int64_t share = (kv_tokens * kv_heads + items - 1) / items;
  return static_cast<std::int32_t>(
      std::clamp((share + round - 1) / round * round, shortest, longest));
}

}  // namespace coppice
