// The kernel that runs the work items of DeFT-Flatten attention
// (kernels/cuda/attention/flatten_plan.h).
#pragma once

#include <climits>
#include <type_traits>

#include "kernels/cuda/attention/attention_item.cuh"
#include "kernels/cuda/pass/pass_view.h"

namespace coppice::cuda::flatten {

struct Arguments : Operands {
  PassView pass;
};

/// A block's shared memory.
template <typename V>
struct BlockMemory {
  SharedTiles<V, int2> tiles;
  FlattenPlan plan;              ///< here because the accumulators leave few registers
  IndexRange visible[V::warps];  ///< by warp: span of the tail tokens that the row tile sees
};

/// Queries of a run of packed rows, and the positions that they lie between.
struct PlacedQueries : IndexRange {
  std::int32_t nearest, farthest;
};

/// What a token and a run of queries are to a kernel without windows: queries [x, y) see the token.
struct ByInterval {
  using Queries = IndexRange;
  using Mark = std::int32_t;  ///< the query

  __device__ ByInterval(const PassView&, const Operands&) {}
  __device__ Queries place(IndexRange queries) const { return queries; }
  __device__ Mark mark(std::int32_t query) const { return query; }
  __device__ std::int32_t first_near(const FlattenPlan&, const Queries&) const { return 0; }
  __device__ int2 seen_by(const VisibleKv& token, const Queries& queries) const {
    const IndexRange seen_by = queries_that_see(token, queries);
    return {seen_by.begin, seen_by.end};
  }
  __device__ static bool nobody(int2 seen_by) { return seen_by.x == seen_by.y; }
  __device__ static bool any_sees(int2 seen_by, const Queries& queries) {
    return !intersection({seen_by.x, seen_by.y}, queries).empty();
  }
  __device__ static bool all_see(int2 seen_by, const Queries& queries) {
    return seen_by.x <= queries.begin && seen_by.y >= queries.end;
  }
  __device__ static bool sees(int2 seen_by, Mark query) {
    return query >= seen_by.x && query < seen_by.y;
  }
};

/// And to a kernel with them: of queries [lower, upper half of x), those at positions before y.
struct ByWindow {
  using Queries = PlacedQueries;
  using Mark = int2;  ///< the query and its position

  const std::int32_t* positions;
  std::int32_t window;

  __device__ ByWindow(const PassView& pass, const Operands& operands)
      : positions(pass.positions), window(operands.window) {}
  /// To be called by whole warps.
  __device__ Queries place(IndexRange queries) const {
    std::int32_t nearest = INT_MAX, farthest = INT_MIN;
    for (std::int32_t query = queries.begin + static_cast<std::int32_t>(threadIdx.x) % 32;
         query < queries.end; query += 32) {
      nearest = min(nearest, positions[query]);
      farthest = max(farthest, positions[query]);
    }
    return {queries, __reduce_min_sync(all_lanes, nearest), __reduce_max_sync(all_lanes, farthest)};
  }
  __device__ Mark mark(std::int32_t query) const { return {query, positions[query]}; }
  /// The first token of the prefix that a query is near enough to.
  __device__ std::int32_t first_near(const FlattenPlan& plan, const Queries& queries) const {
    const std::int32_t first = queries.nearest - window + 1 - plan.prefix_position;
    return min(max(first, 0), plan.prefix);
  }
  __device__ int2 seen_by(const VisibleKv& token, const Queries& queries) const {
    const IndexRange seen_by = queries_that_see(token, queries);
    const std::int32_t end = token.position + window;
    return {end > queries.nearest ? seen_by.begin | seen_by.end << 16 : 0, end};
  }
  __device__ static IndexRange interval(int2 seen_by) {
    return {seen_by.x & 0xffff, static_cast<std::int32_t>(static_cast<unsigned>(seen_by.x) >> 16)};
  }
  __device__ static bool nobody(int2 seen_by) { return interval(seen_by).empty(); }
  __device__ static bool any_sees(int2 seen_by, const Queries& queries) {
    return !intersection(interval(seen_by), queries).empty() && seen_by.y > queries.nearest;
  }
  __device__ static bool all_see(int2 seen_by, const Queries& queries) {
    const IndexRange of = interval(seen_by);
    return of.begin <= queries.begin && of.end >= queries.end && seen_by.y > queries.farthest;
  }
  __device__ static bool sees(int2 seen_by, Mark row) {
    const IndexRange of = interval(seen_by);
    return row.x >= of.begin && row.x < of.end && row.y < seen_by.y;
  }
};

/// A chunk of the flattened tokens, for attention_item.cuh.
template <typename V>
class ChunkItem {
 public:
  using Sight = std::conditional_t<V::window_or_cap, ByWindow, ByInterval>;
  using SeenBy = int2;
  using Queries = typename Sight::Queries;
  using Mark = typename Sight::Mark;

  __device__ ChunkItem(const Arguments& arguments, BlockMemory<V>& shared, FlattenItem item)
      : pass_(arguments.pass),
        shared_(shared),
        item_(item),
        sight_(arguments.pass, arguments),
        tile_queries_(queries_of(first_row(), V::tile_rows)) {}

  __device__ std::int32_t first_row() const { return item_.row_tile * V::tile_rows; }
  __device__ std::int32_t row_end() const { return plan().packed_rows(); }
  __device__ std::int32_t query_of(std::int32_t row) const { return plan().query_of(row); }
  __device__ std::int32_t head_of(std::int32_t row) const {
    return plan().head_of(item_.kv_head, row);
  }
  __device__ std::int32_t former_end() const { return plan().prefix; }
  __device__ Queries queries_of(std::int32_t row, std::int32_t count) const {
    return sight_.place(plan().queries_of(row, count));
  }
  __device__ static bool any_sees(int2 seen_by, const Queries& queries) {
    return Sight::any_sees(seen_by, queries);
  }
  __device__ static bool all_see(int2 seen_by, const Queries& queries) {
    return Sight::all_see(seen_by, queries);
  }
  /// Rows past the last one are that one again.
  __device__ Mark mark_of(std::int32_t row) const {
    return sight_.mark(query_of(min(row, row_end() - 1)));
  }
  __device__ static bool sees(int2 seen_by, const Mark& mark) { return Sight::sees(seen_by, mark); }
  __device__ bool direct() const { return plan().chunks == 1; }
  __device__ std::int64_t partial(std::int32_t query, std::int32_t head) const {
    return plan().partial(query, head, item_.chunk);
  }

  __device__ TokenEntry<int2> token(const Operands& operands, std::int32_t at) const {
    const VisibleKv token = plan().token(pass_.prefix_slots, pass_.tail, at);
    const int2 seen_by = sight_.seen_by(token, tile_queries_);
    if (Sight::nobody(seen_by)) return {{0, 0}, -1};
    return {seen_by, pool_row_of(operands, item_.kv_head, token.slot)};
  }

  /// The chunk, but for what the row tile does not see at its ends. Holds a barrier.
  __device__ IndexRange tokens() const {
    IndexRange chunk = plan().tokens_of(item_.chunk);
    chunk.begin = max(chunk.begin, sight_.first_near(plan(), tile_queries_));
    const std::int32_t prefix = plan().prefix;
    if (chunk.end <= prefix) return chunk.empty() ? IndexRange{} : chunk;
    std::int32_t begin = INT_MAX;
    std::int32_t end = 0;
    const std::int32_t tail_begin = chunk.begin > prefix ? chunk.begin : prefix;
    for (std::int32_t at = tail_begin + static_cast<std::int32_t>(threadIdx.x); at < chunk.end;
         at += V::threads) {
      if (Sight::nobody(sight_.seen_by(pass_.tail[at - prefix], tile_queries_))) continue;
      begin = min(begin, at);
      end = at + 1;
    }
    begin = __reduce_min_sync(all_lanes, begin);
    end = __reduce_max_sync(all_lanes, end);
    if (threadIdx.x % 32 == 0) shared_.visible[threadIdx.x / 32] = {begin, end};
    __syncthreads();
    for (int warp = 0; warp < V::warps; ++warp) {
      begin = min(begin, shared_.visible[warp].begin);
      end = max(end, shared_.visible[warp].end);
    }
    if (chunk.begin < prefix) {
      begin = chunk.begin;
      end = max(end, prefix);
    }
    return begin < end ? IndexRange{begin, end} : IndexRange{};
  }

 private:
  __device__ const FlattenPlan& plan() const { return shared_.plan; }

  const PassView& pass_;
  BlockMemory<V>& shared_;
  FlattenItem item_;
  Sight sight_;
  Queries tile_queries_;
};

__device__ inline FlattenPlan plan_of(const PassScalars& scalars, std::int32_t kv_heads,
                                      std::int32_t group, std::int32_t tile_rows) {
  FlattenPlan plan;
  plan.rows = scalars.rows;
  plan.group = group;
  plan.kv_heads = kv_heads;
  plan.tile_rows = tile_rows;
  plan.prefix = scalars.prefix;
  plan.prefix_begin = scalars.prefix_begin;
  plan.prefix_position = scalars.prefix_position;
  plan.tail = scalars.tail;
  plan.chunk_tokens = scalars.chunk_tokens;
  plan.chunks = scalars.chunks;
  return plan;
}

/// Grid: any number of blocks, which take items in turn. Before it waits for former kernels a block
/// reads what no kernel of the pass writes: the plan, slots, keys and values of the prefix.
template <typename V>
__global__ void __launch_bounds__(V::threads, V::blocks_per_sm) attend(Arguments arguments) {
  let_next_kernel_begin();
  extern __shared__ uint4 dynamic_shared[];
  auto& shared = *reinterpret_cast<BlockMemory<V>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    shared.plan =
        plan_of(*arguments.pass.scalars, arguments.kv_heads, arguments.group, V::tile_rows);
  }
  __syncthreads();
  const std::int32_t items = shared.plan.items();
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < items;
       index += static_cast<std::int32_t>(gridDim.x)) {
    run_item(arguments, ChunkItem<V>(arguments, shared, shared.plan.item(index)), shared.tiles);
  }
}

}  // namespace coppice::cuda::flatten
