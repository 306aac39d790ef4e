// The Hopper attention kernel and its launch.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper_consumer.cuh"
#include "kernels/cuda/attention/hopper_narrow.cuh"
#include "kernels/cuda/attention/hopper_producer.cuh"
#include "kernels/cuda/attention/hopper_results.cuh"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda::hopper {

template <typename V>
using ConsumerOf =
    std::conditional_t<V::tile_rows == range_narrow_tile, NarrowConsumer<V>, Consumer<V>>;

/// Registers of a thread, once warpgroups have taken and given back. A block has what it was
/// launched with: more to be taken than was given back would be waited for for ever.
inline constexpr int producer_registers = 40;
template <typename V>
inline constexpr int launch_registers = 65536 / V::threads / 8 * 8;
template <typename V>
inline constexpr int consumer_registers = (V::threads * launch_registers<V> -
                                           (V::threads - consumer_threads) * producer_registers) /
                                          consumer_threads / 8 * 8;

struct NoTrace {
  __device__ void mark(Phase) const {}
};

/// Before wait_for_former_kernels() only what no kernel of this pass writes is read: plan, ranges,
/// runs, slots, and the prefix's keys and values. The tail's, queries, counters and results come
/// after.
///
/// Grid: blocks that are all resident at a time. The body needs instructions of this architecture
/// alone.
template <typename V, typename Trace = NoTrace>
__global__ void __launch_bounds__(V::threads, 1)
    attend([[maybe_unused]] const __grid_constant__ Arguments arguments,
           [[maybe_unused]] const Trace trace) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  trace.mark(Phase::began);
  let_next_kernel_begin();
  extern __shared__ __align__(1024) uint4 dynamic_shared[];
  __shared__ SharedState<V> state;
  __shared__ RangePlan plan;

  auto& tiles = *reinterpret_cast<SharedTiles<V>*>(dynamic_shared);
  __shared__ BlockRange range;
  if (threadIdx.x < 32) {
    load_range(arguments, range);
  } else if (threadIdx.x == 96) {
    plan = plan_of<V>(arguments);
  } else if (threadIdx.x == 32) {
    for (int stage = 0; stage < V::stages; ++stage) {
      init_barrier(&state.keys_filled[stage], 2 * warpgroup_threads);
      init_barrier(&state.values_filled[stage], warpgroup_threads);
      for (int turn = 0; turn < 2; ++turn) {
        init_barrier(&state.keys_emptied[turn][stage], 32 * V::readers);
        init_barrier(&state.values_emptied[turn][stage], V::readers);
      }
    }
  } else if (threadIdx.x == 64 && arguments.has_boxes) {
    prefetch_map(arguments.key_boxes);
    prefetch_map(arguments.value_boxes);
  }
  __syncthreads();
  trace.mark(Phase::planned);
  int copier = threadIdx.x < warpgroup_threads ? 0 : -1;  // of which producer
  if constexpr (V::producers > 1) {
    if (threadIdx.x >= warpgroup_threads + consumer_threads) copier = 1;
    // So that the compiler knows that a warp's lanes have the same.
    copier = __shfl_sync(all_lanes, copier, 0);
  }
  if (copier >= 0) {
    give_registers_back<producer_registers>();
    Producer<V> producer(arguments, plan, tiles, state, copier);
    for_each_piece(arguments, plan, range, [&](const RangePiece& piece) { producer.copy(piece); });
    flatten::wait_for_copies();
  } else {
    take_registers<consumer_registers<V>>();

    ConsumerOf<V> consumer(arguments, plan, tiles, state);
    Results<V, ConsumerOf<V>> results(arguments, plan);
    for_each_piece(arguments, plan, range, [&](const RangePiece& piece) {
      consumer.compute(piece, trace);
      trace.mark(Phase::computed);
      results.take(piece, range.gang, range.member, consumer);
      trace.mark(Phase::handed_over);
    });

    for_each_piece(arguments, plan, range, [&](const RangePiece& piece) {
      if (piece.contributors > 1) results.join(piece, range.gang, range.member, trace);
    });
    trace.mark(Phase::joined);
  }
#endif
}

template <typename V>
constexpr int shared_bytes() {
  return static_cast<int>(sizeof(SharedTiles<V>));
}

/// Launches a kernel on `blocks` blocks that are resident at a time, with a variant's threads and
/// shared memory. Where the former kernel lets it, it begins before that one's end.
template <typename V, typename Kernel, typename... Values>
void launch_alike(Kernel kernel, std::int32_t blocks, cudaStream_t stream,
                  const Values&... values) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(V::threads);
  config.dynamicSmemBytes = shared_bytes<V>();
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = overlaps_kernels() ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, values...), "tree attention");
  check_launch("tree attention");
}

template <typename V, typename Trace>
void launch(const Arguments& arguments, const Trace& trace, std::int32_t blocks,
            cudaStream_t stream) {
  launch_alike<V>(attend<V, Trace>, blocks, stream, arguments, trace);
}

/// Calls visit(Variant) with the variant with a window or a soft cap of a launch.
template <int head_dim, typename Visit>
void with_window_or_cap_tiles(const AttentionLaunch& of, Visit visit) {
  if (of.tiles.rows == range_half_tile) {
    visit(Variant<head_dim, range_half_tile, range_half_tokens, true>());
  } else {
    visit(Variant<head_dim, range_wide_tile, range_half_tokens, true>());
  }
}

/// With that of a launch without a rule; row tiles of 16 have the larger KV tiles alone.
template <int head_dim, typename Visit>
void with_tiles(const AttentionLaunch& of, Visit visit) {
  const RangeTiles tiles = of.tiles;
  if (tiles.rows == range_narrow_tile) {
    return visit(Variant<head_dim, range_narrow_tile, range_tile_tokens>());
  }
  const auto with_tokens = [&]<int rows, bool leaves_out>() {
    if (tiles.tokens == range_tile_tokens) {
      visit(Variant<head_dim, rows, range_tile_tokens, false, leaves_out>());
    } else {
      visit(Variant<head_dim, rows, range_half_tokens, false, leaves_out>());
    }
  };
  if (tiles.rows == range_half_tile) {
    with_tokens.template operator()<range_half_tile, false>();
  } else if (of.leaves_out) {
    with_tokens.template operator()<range_wide_tile, true>();
  } else {
    with_tokens.template operator()<range_wide_tile, false>();
  }
}

}  // namespace coppice::cuda::hopper
