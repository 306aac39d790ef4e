#include <algorithm>

#include "item_kernel.h"
#include "kernels/cuda/attention/attention_item.cuh"
#include "kernels/cuda/attention/attention_join.cuh"
#include "kernels/cuda/error.h"

namespace coppice::bench {
namespace {

namespace flatten = coppice::cuda::flatten;

constexpr int narrow_warps = narrow_item_rows / 16;
constexpr int wide_warps = wide_item_rows / 16;
constexpr std::int32_t most_join_blocks = 4096;

struct Arguments : cuda::Operands {
  ItemView view;
};

/// Ones in bits [begin, end), 0 <= begin <= end <= 64.
__device__ std::uint64_t bits_between(std::int32_t begin, std::int32_t end) {
  return begin == end ? 0 : (~std::uint64_t{0} >> (64 - (end - begin))) << begin;
}

/// An Item for attention_item.cuh. Bit i: the item's query i sees the token.
class ListedItem {
 public:
  using SeenBy = std::uint64_t;
  using Queries = std::uint64_t;
  using Mark = std::int32_t;

  __device__ explicit ListedItem(const Arguments& arguments)
      : view_(arguments.view),
        group_(arguments.group),
        heads_(arguments.heads()),
        item_(view_.items[blockIdx.x]),
        first_query_(item_.row_begin / group_) {}

  __device__ std::int32_t first_row() const { return item_.row_begin; }
  __device__ std::int32_t row_end() const { return item_.row_end; }
  __device__ std::int32_t query_of(std::int32_t row) const { return row / group_; }
  __device__ std::int32_t head_of(std::int32_t row) const {
    return item_.kv_head * group_ + row % group_;
  }
  __device__ IndexRange tokens() const { return {item_.token_begin, item_.token_end}; }
  __device__ std::int32_t former_end() const { return item_.token_end; }
  __device__ std::uint64_t queries_of(std::int32_t row, std::int32_t count) const {
    const std::int32_t end = min(row + count, item_.row_end);
    return row < end ? bits_between(mark_of(row), mark_of(end - 1) + 1) : 0;
  }
  __device__ static bool any_sees(std::uint64_t seen_by, std::uint64_t queries) {
    return (seen_by & queries) != 0;
  }
  __device__ static bool all_see(std::uint64_t seen_by, std::uint64_t queries) {
    return (seen_by & queries) == queries;
  }
  __device__ std::int32_t mark_of(std::int32_t row) const { return query_of(row) - first_query_; }
  __device__ static bool sees(std::uint64_t seen_by, std::int32_t bit) {
    return (seen_by >> bit & 1) != 0;
  }
  __device__ bool direct() const { return view_.direct; }
  __device__ std::int64_t partial(std::int32_t query, std::int32_t head) const {
    return std::int64_t{query + item_.partial_shift} * heads_ + head;
  }
  __device__ flatten::TokenEntry<std::uint64_t> token(const cuda::Operands& operands,
                                                      std::int32_t at) const {
    const std::uint64_t seen_by =
        at < item_.first_masked ? all() : view_.masks[item_.masks + at - item_.first_masked];
    if (seen_by == 0) return {0, -1};
    return {seen_by, flatten::pool_row_of(operands, item_.kv_head, view_.slots[at])};
  }

 private:
  __device__ std::uint64_t all() const { return bits_between(0, mark_of(item_.row_end - 1) + 1); }

  const ItemView& view_;
  const std::int32_t group_, heads_;
  const Item item_;
  const std::int32_t first_query_;
};

/// Partial results whose numbers stand in a list: of query q, all[begins[q] .. begins[q + 1]).
struct ListedPartials {
  const std::int32_t* numbers;
  std::int32_t count, heads, head;

  __device__ static ListedPartials of(std::int32_t pair, std::int32_t heads,
                                      const std::int32_t* begins, const std::int32_t* all) {
    const std::int32_t begin = begins[pair / heads];
    return {all + begin, begins[pair / heads + 1] - begin, heads, pair % heads};
  }
  __device__ std::int64_t at(std::int32_t i) const {
    return std::int64_t{numbers[i]} * heads + head;
  }
};

template <int warps>
using Tiles = flatten::SharedTiles<flatten::Variant<item_head_dim, warps>, ListedItem::SeenBy>;

/// Grid: a block per item.
template <int warps>
__global__ void __launch_bounds__(flatten::Variant<item_head_dim, warps>::threads,
                                  flatten::Variant<item_head_dim, warps>::blocks_per_sm)
    run_items(Arguments arguments) {
  extern __shared__ uint4 item_shared[];
  flatten::run_item(arguments, ListedItem(arguments),
                    *reinterpret_cast<Tiles<warps>*>(item_shared));
}

__global__ void __launch_bounds__(flatten::join_threads) join_items(Arguments arguments) {
  const ItemView& view = arguments.view;
  const std::int32_t heads = arguments.heads();
  flatten::join_pairs<item_head_dim>(arguments, view.rows, [&](std::int32_t pair) {
    return ListedPartials::of(pair, heads, view.partials_begin, view.partials);
  });
}

template <int warps>
void launch(const Arguments& arguments, cudaStream_t stream) {
  run_items<warps><<<static_cast<unsigned>(arguments.view.item_count), 32 * warps,
                     sizeof(Tiles<warps>), stream>>>(arguments);
  cuda::check_launch("item attention");
}

}  // namespace

void prepare_item_attention() {
  flatten::allow_shared_memory<sizeof(Tiles<narrow_warps>)>(run_items<narrow_warps>);
  flatten::allow_shared_memory<sizeof(Tiles<wide_warps>)>(run_items<wide_warps>);
}

void item_attention(const ItemView& view, const cuda::Operands& operands, cudaStream_t stream) {
  const Arguments arguments{operands, view};
  if (view.tile_rows == narrow_item_rows) {
    launch<narrow_warps>(arguments, stream);
  } else {
    launch<wide_warps>(arguments, stream);
  }
  if (view.direct) return;
  const std::int32_t blocks = std::min(view.rows * operands.heads(), most_join_blocks);
  join_items<<<static_cast<unsigned>(blocks), flatten::join_threads, 0, stream>>>(arguments);
  cuda::check_launch("join of items");
}

}  // namespace coppice::bench
