#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/attention/attention_join.cuh"
#include "kernels/cuda/attention/attention_kernel.cuh"
#include "kernels/cuda/attention/listed_attention.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

using flatten::Arguments;

/// A ListedItem and a KV head, for attention_item.cuh.
template <typename V>
class ItemOfList {
 public:
  using SeenBy = int2;
  using Queries = IndexRange;
  using Mark = std::int32_t;

  __device__ ItemOfList(const Arguments& arguments, const FlattenPlan& plan, std::int32_t index)
      : pass_(arguments.pass),
        plan_(plan),
        kv_head_(index % plan.kv_heads),
        item_(arguments.pass.list->item()[index / plan.kv_heads]) {}

  __device__ std::int32_t first_row() const { return item_.rows.begin; }
  __device__ std::int32_t row_end() const { return item_.rows.end; }
  __device__ std::int32_t query_of(std::int32_t row) const { return plan_.query_of(row); }
  __device__ std::int32_t head_of(std::int32_t row) const { return plan_.head_of(kv_head_, row); }
  __device__ IndexRange tokens() const { return item_.tokens; }
  __device__ std::int32_t former_end() const { return plan_.prefix; }
  __device__ Queries queries_of(std::int32_t row, std::int32_t count) const {
    const IndexRange rows = intersection({row, row + count}, item_.rows);
    return rows.empty() ? IndexRange{} : plan_.queries_of(rows.begin, rows.end - rows.begin);
  }
  __device__ static bool any_sees(int2 seen_by, const Queries& queries) {
    return flatten::ByInterval::any_sees(seen_by, queries);
  }
  __device__ static bool all_see(int2 seen_by, const Queries& queries) {
    return flatten::ByInterval::all_see(seen_by, queries);
  }
  __device__ Mark mark_of(std::int32_t row) const { return query_of(min(row, row_end() - 1)); }
  __device__ static bool sees(int2 seen_by, Mark query) {
    return flatten::ByInterval::sees(seen_by, query);
  }
  __device__ bool direct() const { return false; }
  __device__ std::int64_t partial(std::int32_t query, std::int32_t head) const {
    return std::int64_t{query + item_.partial_shift} * plan_.heads() + head;
  }
  __device__ flatten::TokenEntry<int2> token(const Operands& operands, std::int32_t at) const {
    const VisibleKv token = plan_.token(pass_.prefix_slots, pass_.tail, at);
    const IndexRange seen_by = queries_that_see(token, queries_of(first_row(), V::tile_rows));
    if (seen_by.empty()) return {{0, 0}, -1};
    return {{seen_by.begin, seen_by.end}, flatten::pool_row_of(operands, kv_head_, token.slot)};
  }

 private:
  const PassView& pass_;
  const FlattenPlan& plan_;
  const std::int32_t kv_head_;
  const ListedItem item_;
};

/// Grid: any number of blocks, which take items in turn.
template <typename V>
__global__ void __launch_bounds__(V::threads, V::blocks_per_sm) attend_list(Arguments arguments) {
  let_next_kernel_begin();
  extern __shared__ uint4 listed_shared[];
  auto& shared = *reinterpret_cast<flatten::BlockMemory<V>*>(listed_shared);
  if (threadIdx.x == 0) {
    shared.plan = flatten::plan_of(*arguments.pass.scalars, arguments.kv_heads, arguments.group,
                                   V::tile_rows);
  }
  __syncthreads();
  const std::int32_t items = arguments.pass.list->items * arguments.kv_heads;
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < items;
       index += static_cast<std::int32_t>(gridDim.x)) {
    flatten::run_item(arguments, ItemOfList<V>(arguments, shared.plan, index), shared.tiles);
  }
}

/// Grid: any number of blocks.
template <int head_dim>
__global__ void __launch_bounds__(flatten::join_threads) join_list(Arguments arguments) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const ItemListHead& list = *arguments.pass.list;
  const std::int32_t heads = arguments.heads();
  flatten::join_pairs<head_dim>(arguments, arguments.pass.scalars->rows, [&](std::int32_t pair) {
    return flatten::ListedPartials::of(pair, heads, list.begins(), list.partials());
  });
}

template <typename V>
void prepare() {
  flatten::allow_shared_memory<sizeof(flatten::BlockMemory<V>)>(attend_list<V>);
}

template <typename V>
void launch(const Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  launch_early(attend_list<V>, dim3(static_cast<unsigned>(blocks)), V::threads,
               static_cast<int>(sizeof(flatten::BlockMemory<V>)), stream, arguments);
  check_launch("attention by a list");
}

/// Calls visit(narrow variant, wide variant).
template <typename Visit>
void with_variants(std::int32_t head_dim, Visit visit) {
  if (head_dim == 64) {
    return visit(flatten::Variant<64, narrow_row_tile / 16>(),
                 flatten::Variant<64, wide_row_tile / 16>());
  }
  if (head_dim == 128) {
    return visit(flatten::Variant<128, narrow_row_tile / 16>(),
                 flatten::Variant<128, wide_row_tile / 16>());
  }
  throw_failure(cat("attention by a list: heads of ", head_dim, " elements; it has 64 and 128"));
}

}  // namespace

void prepare_listed_attention(std::int32_t head_dim) {
  with_variants(head_dim, []<typename Narrow, typename Wide>(Narrow, Wide) {
    prepare<Narrow>();
    prepare<Wide>();
  });
}

void listed_attention(std::int32_t tile_rows, const PassView& pass, std::int32_t padded_rows,
                      const void* q, std::int64_t q_stride, const AttentionShape& shape,
                      const AttentionRule& rule, const KvLayout& layout, const void* keys,
                      const void* values, std::int32_t layer, void* out,
                      const AttentionScratch& scratch, const ResidentBlocks& blocks,
                      cudaStream_t stream) {
  const Arguments arguments{
      make_operands(q, q_stride, shape, rule, layout, keys, values, layer, out, scratch), pass};
  const std::int32_t join_blocks = std::min(padded_rows * shape.heads, 4 * blocks.wide);
  with_variants(shape.head_dim, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
    if (tile_rows == narrow_row_tile) {
      launch<Narrow>(arguments, blocks.narrow, stream);
    } else {
      launch<Wide>(arguments, blocks.wide, stream);
    }
    launch_early(join_list<Narrow::head_dim>, dim3(static_cast<unsigned>(join_blocks)),
                 flatten::join_threads, 0, stream, arguments);
    check_launch("join of a list's partial results");
  });
}

}  // namespace coppice::cuda
