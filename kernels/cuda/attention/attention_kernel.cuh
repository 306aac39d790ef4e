// The kernel that runs the work items of DeFT-Flatten attention
// (kernels/cuda/attention/flatten_plan.h).
#pragma once

#include <climits>

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

/// A chunk of the flattened tokens, for attention_item.cuh. A token is seen by the queries [x, y).
template <typename V>
class ChunkItem {
 public:
  using SeenBy = int2;
  using Queries = IndexRange;

  __device__ ChunkItem(const PassView& pass, BlockMemory<V>& shared, FlattenItem item)
      : pass_(pass),
        shared_(shared),
        item_(item),
        tile_queries_(queries_of(first_row(), V::tile_rows)) {}

  __device__ std::int32_t first_row() const { return item_.row_tile * V::tile_rows; }
  __device__ std::int32_t row_end() const { return plan().packed_rows(); }
  __device__ std::int32_t query_of(std::int32_t row) const { return plan().query_of(row); }
  __device__ std::int32_t head_of(std::int32_t row) const {
    return plan().head_of(item_.kv_head, row);
  }
  __device__ std::int32_t former_end() const { return plan().prefix; }
  __device__ IndexRange queries_of(std::int32_t row, std::int32_t count) const {
    return plan().queries_of(row, count);
  }
  __device__ static bool any_sees(int2 seen_by, IndexRange queries) {
    return !intersection({seen_by.x, seen_by.y}, queries).empty();
  }
  __device__ static bool all_see(int2 seen_by, IndexRange queries) {
    return seen_by.x <= queries.begin && seen_by.y >= queries.end;
  }
  __device__ std::int32_t mark_of(std::int32_t row) const { return query_of(row); }
  __device__ static bool sees(int2 seen_by, std::int32_t query) {
    return query >= seen_by.x && query < seen_by.y;
  }
  __device__ bool direct() const { return plan().chunks == 1; }
  __device__ std::int64_t partial(std::int32_t query, std::int32_t head) const {
    return plan().partial(query, head, item_.chunk);
  }

  __device__ TokenEntry<int2> token(const Operands& operands, std::int32_t at) const {
    const VisibleKv token = plan().token(pass_.prefix_slots, pass_.tail, at);
    const IndexRange seen_by = queries_that_see(token, tile_queries_);
    if (seen_by.empty()) return {{0, 0}, -1};
    return {{seen_by.begin, seen_by.end}, pool_row_of(operands, item_.kv_head, token.slot)};
  }

  /// The chunk, but for what the row tile does not see at its ends. Holds a barrier.
  __device__ IndexRange tokens() const {
    const IndexRange chunk = plan().tokens_of(item_.chunk);
    const std::int32_t prefix = plan().prefix;
    if (chunk.end <= prefix) return chunk;
    std::int32_t begin = INT_MAX;
    std::int32_t end = 0;
    const std::int32_t tail_begin = chunk.begin > prefix ? chunk.begin : prefix;
    for (std::int32_t at = tail_begin + static_cast<std::int32_t>(threadIdx.x); at < chunk.end;
         at += V::threads) {
      if (queries_that_see(pass_.tail[at - prefix], tile_queries_).empty()) continue;
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
  IndexRange tile_queries_;
};

__device__ inline FlattenPlan plan_of(const PassScalars& scalars, std::int32_t kv_heads,
                                      std::int32_t group, std::int32_t tile_rows) {
  FlattenPlan plan;
  plan.rows = scalars.rows;
  plan.group = group;
  plan.kv_heads = kv_heads;
  plan.tile_rows = tile_rows;
  plan.prefix = scalars.prefix;
  plan.tail = scalars.tail;
  plan.chunk_tokens = scalars.chunk_tokens;
  plan.chunks = scalars.chunks;
  return plan;
}

/// Grid: any number of blocks, which take items in turn. Before it waits for former kernels a block
/// reads what no kernel of the pass writes: the plan, slots, keys and values of the prefix.
template <int head_dim, int warps>
__global__ void __launch_bounds__(Variant<head_dim, warps>::threads,
                                  Variant<head_dim, warps>::blocks_per_sm)
    attend(Arguments arguments) {
  let_next_kernel_begin();
  using V = Variant<head_dim, warps>;
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
    run_item(arguments, ChunkItem<V>(arguments.pass, shared, shared.plan.item(index)),
             shared.tiles);
  }
}

}  // namespace coppice::cuda::flatten
