#include "item_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/attention/flatten_plan.h"

namespace coppice::bench {
namespace {

/// Tokens are numbered as the flattened list has them, prefix before tail.
using Tokens = std::vector<std::int32_t>;

class PlanBuilder {
 public:
  explicit PlanBuilder(const Workload& work) : work_(work) {
    plan_.shape = work.cell.shape();
    plan_.rows = work.cell.rows;
    if (plan_.group() > wide_item_rows) {
      throw_failure(cat("items of at most ", wide_item_rows, " query heads per KV head, not ",
                        plan_.group()));
    }
  }

  /// Appends tokens to the list; returns where they begin.
  std::int32_t append(const Tokens& tokens) {
    const auto begin = static_cast<std::int32_t>(list_.size());
    list_.insert(list_.end(), tokens.begin(), tokens.end());
    return begin;
  }

  /// One QKV group, or several equal ones where it has more than `cut` tokens.
  void add(IndexRange tokens, IndexRange queries, CutLength cut) {
    const std::int32_t count = tokens.end - tokens.begin;
    const std::int32_t parts = cut == 0 ? 1 : (count + cut - 1) / cut;
    for (std::int32_t part = 0; part < parts; ++part) {
      const auto at = [&](std::int32_t index) {
        return tokens.begin + static_cast<std::int32_t>(std::int64_t{count} * index / parts);
      };
      groups_.push_back({{at(part), at(part + 1)}, queries});
    }
  }

  ItemPlan finish() {
    const std::int32_t group = plan_.group();
    const auto all_narrow = std::all_of(groups_.begin(), groups_.end(), [&](const Group& g) {
      return (g.queries.end - g.queries.begin) * group <= narrow_item_rows;
    });
    plan_.tile_rows = all_narrow ? narrow_item_rows : wide_item_rows;
    for (const std::int32_t token : list_) plan_.slots.push_back(slot(token));
    // Long ones first: the short ones then fill the gaps.
    std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      return a.tokens.end - a.tokens.begin > b.tokens.end - b.tokens.begin;
    });
    std::vector<Tokens> partials(static_cast<std::size_t>(plan_.rows));
    for (const Group& g : groups_) emit(g, partials);
    plan_.partials_begin.push_back(0);
    plan_.direct = true;
    for (const Tokens& of_query : partials) {
      plan_.partials.insert(plan_.partials.end(), of_query.begin(), of_query.end());
      plan_.partials_begin.push_back(static_cast<std::int32_t>(plan_.partials.size()));
      if (of_query.size() != 1) plan_.direct = false;
    }
    return std::move(plan_);
  }

 private:
  struct Group {
    IndexRange tokens;  ///< in the list
    IndexRange queries;
  };

  std::int32_t prefix() const { return static_cast<std::int32_t>(work_.prefix.size()); }
  KvSlot slot(std::int32_t token) const {
    return token < prefix() ? work_.prefix[static_cast<std::size_t>(token)]
                            : work_.tail_slots[static_cast<std::size_t>(token - prefix())];
  }
  bool sees(std::int32_t query, std::int32_t token) const {
    return token < prefix() || work_.visibility.sees(query, token - prefix());
  }
  /// Bit i: query queries.begin + i sees the token at `place` of the list.
  std::uint64_t mask(std::int32_t place, IndexRange queries) const {
    const std::int32_t token = list_[static_cast<std::size_t>(place)];
    std::uint64_t bits = 0;
    for (std::int32_t query = queries.begin; query < queries.end; ++query) {
      if (sees(query, token)) bits |= std::uint64_t{1} << (query - queries.begin);
    }
    return bits;
  }

  void emit(const Group& g, std::vector<Tokens>& partials) {
    const std::int32_t group = plan_.group();
    const double token_bytes = 2.0 * 2.0 * plan_.shape.head_dim * plan_.shape.kv_heads;
    const std::int32_t row_end = g.queries.end * group;
    // A query's heads lie in one row tile: either all of them have a partial result or none.
    const std::int32_t step = plan_.tile_rows / group * group;
    std::vector<Item> tiles;
    std::vector<char> has_partial(static_cast<std::size_t>(plan_.rows), 0);
    std::vector<char> read(static_cast<std::size_t>(g.tokens.end - g.tokens.begin), 0);
    for (std::int32_t row = g.queries.begin * group; row < row_end; row += step) {
      Item item;
      item.row_begin = row;
      item.row_end = std::min(row + step, row_end);
      item.partial_shift = plan_.partial_rows - g.queries.begin;
      const IndexRange queries{item.row_begin / group, (item.row_end - 1) / group + 1};
      const std::int32_t count = queries.end - queries.begin;
      const std::uint64_t all = ~std::uint64_t{0} >> (64 - count);
      std::vector<std::uint64_t> masks;
      for (std::int32_t at = g.tokens.begin; at < g.tokens.end; ++at) {
        masks.push_back(mask(at, queries));
      }
      const auto seen = [](std::uint64_t bits) { return bits != 0; };
      const auto first = std::find_if(masks.begin(), masks.end(), seen);
      if (first == masks.end()) continue;
      const auto last = std::find_if(masks.rbegin(), masks.rend(), seen).base();
      const auto masked =
          std::find_if(first, last, [&](std::uint64_t bits) { return bits != all; });
      const auto place = [&](auto at) {
        return g.tokens.begin + static_cast<std::int32_t>(at - masks.begin());
      };
      item.token_begin = place(first);
      item.token_end = place(last);
      item.first_masked = place(masked);
      item.masks = static_cast<std::int32_t>(plan_.masks.size());
      plan_.masks.insert(plan_.masks.end(), masked, last);
      tiles.push_back(item);
      for (std::int32_t query = queries.begin; query < queries.end; ++query) {
        if (std::exchange(has_partial[static_cast<std::size_t>(query)], 1) == 0) {
          partials[static_cast<std::size_t>(query)].push_back(query + item.partial_shift);
        }
      }
      for (auto at = first; at != last; ++at) {
        if (*at == 0) continue;
        plan_.block_kv_bytes += token_bytes;
        read[static_cast<std::size_t>(at - masks.begin())] = 1;
      }
    }
    plan_.group_kv_bytes +=
        token_bytes * static_cast<double>(std::count(read.begin(), read.end(), 1));
    plan_.partial_rows += g.queries.end - g.queries.begin;
    // Row tiles vary first: items that run side by side read the same keys and values.
    for (std::int32_t kv_head = 0; kv_head < plan_.shape.kv_heads; ++kv_head) {
      for (Item item : tiles) {
        item.kv_head = kv_head;
        plan_.items.push_back(item);
      }
    }
  }

  const Workload& work_;
  ItemPlan plan_;
  Tokens list_;
  std::vector<Group> groups_;
};

Tokens all_tokens(const Workload& work) {
  Tokens tokens(static_cast<std::size_t>(work.tokens()));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// Whether `next` goes on with the node that `token` belongs to.
bool same_node(const VisibleKv& token, const VisibleKv& next) {
  return next.q_end == token.q_end &&
         (next.q_begin == token.q_begin || next.q_begin == token.q_begin + 1);
}

}  // namespace

ItemPlan plan_flatten(const Workload& work, CutLength cut) {
  PlanBuilder builder(work);
  builder.append(all_tokens(work));
  builder.add({0, work.tokens()}, {0, work.cell.rows}, cut);
  return builder.finish();
}

ItemPlan plan_nodes(const Workload& work, CutLength cut) {
  if (std::ssize(work.tail) != std::ssize(work.tail_slots)) {
    throw_failure("nodes are runs of the tail in depth-first order, which this workload is not in");
  }
  PlanBuilder builder(work);
  builder.append(all_tokens(work));
  const auto prefix = static_cast<std::int32_t>(work.prefix.size());
  if (prefix > 0) builder.add({0, prefix}, {0, work.cell.rows}, cut);
  const auto tail = static_cast<std::int32_t>(work.tail.size());
  const auto token = [&](std::int32_t at) { return work.tail[static_cast<std::size_t>(at)]; };
  for (std::int32_t begin = 0, end = 0; begin < tail; begin = end) {
    for (end = begin + 1; end < tail && same_node(token(end - 1), token(end));) ++end;
    const IndexRange queries{token(begin).q_begin, token(begin).q_end};
    builder.add({prefix + begin, prefix + end}, queries, cut);
  }
  return builder.finish();
}

ItemPlan plan_radix(const Workload& work, CutLength cut) {
  PlanBuilder builder(work);
  const auto prefix = static_cast<std::int32_t>(work.prefix.size());
  for (std::int32_t query = 0; query < work.cell.rows; ++query) {
    Tokens path(static_cast<std::size_t>(prefix));
    std::iota(path.begin(), path.end(), 0);
    for (std::int32_t token = 0; token < work.cell.tail(); ++token) {
      if (work.visibility.sees(query, token)) path.push_back(prefix + token);
    }
    const std::int32_t begin = builder.append(path);
    const auto count = static_cast<std::int32_t>(path.size());
    builder.add({begin, begin + count}, {query, query + 1}, cut);
  }
  return builder.finish();
}

ItemPlan plan_blocks(const Workload& work, CutLength cut) {
  PlanBuilder builder(work);
  const auto prefix = static_cast<std::int32_t>(work.prefix.size());
  const std::int32_t tail = work.cell.tail();
  const std::int32_t queries_per_tile = wide_item_rows / work.cell.group();
  for (std::int32_t first = 0; first < work.cell.rows; first += queries_per_tile) {
    const IndexRange queries{first, std::min(first + queries_per_tile, work.cell.rows)};
    Tokens tokens(static_cast<std::size_t>(prefix));
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::int32_t tile = 0; tile < tail; tile += block_tokens) {
      const std::int32_t end = std::min(tile + block_tokens, tail);
      bool seen = false;
      for (std::int32_t query = queries.begin; query < queries.end && !seen; ++query) {
        for (std::int32_t token = tile; token < end && !seen; ++token) {
          seen = work.visibility.sees(query, token);
        }
      }
      for (std::int32_t token = tile; seen && token < end; ++token) {
        tokens.push_back(prefix + token);
      }
    }
    const std::int32_t begin = builder.append(tokens);
    builder.add({begin, begin + static_cast<std::int32_t>(tokens.size())}, queries, cut);
  }
  return builder.finish();
}

}  // namespace coppice::bench
