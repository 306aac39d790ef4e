#include <bit>
#include <climits>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_consumer.cuh"
#include "kernels/cuda/hopper_producer.cuh"
#include "kernels/cuda/hopper_results.cuh"

namespace coppice::cuda {
namespace hopper {

/// Grid: blocks that are all resident at a time. The body needs instructions of this architecture
/// alone.
template <int head_dim, int tile_rows>
__global__ void __launch_bounds__(threads, 1)
    attend([[maybe_unused]] const __grid_constant__ Arguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using V = Variant<head_dim, tile_rows>;
  extern __shared__ __align__(1024) uint4 dynamic_shared[];
  __shared__ SharedState state;
  __shared__ RangePlan plan;

  auto& tiles = *reinterpret_cast<SharedTiles<V>*>(dynamic_shared);
  __shared__ BlockRange range;
  if (threadIdx.x < 32) {
    load_range(arguments, range);
  } else if (threadIdx.x == 96) {
    plan = plan_of(arguments, tile_rows);
  } else if (threadIdx.x == 32) {
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(&state.keys_filled[stage], warpgroup_threads + producer_warps);
      init_barrier(&state.values_filled[stage], warpgroup_threads);
      init_barrier(&state.keys_emptied[stage], V::readers);
      init_barrier(&state.values_emptied[stage], V::readers);
    }
  } else if (threadIdx.x == 64 && arguments.has_boxes) {
    prefetch_map(arguments.key_boxes);
    prefetch_map(arguments.value_boxes);
  }
  __syncthreads();
  if (threadIdx.x < warpgroup_threads) {
    give_registers_back<40>();
    Producer<V> producer(arguments, plan, tiles, state);
    for_each_piece(plan, range, [&](const RangePiece& piece) { producer.copy(piece); });
    flatten::wait_for_copies();
  } else {
    take_registers<232>();

    Consumer<V> consumer(arguments, plan, tiles, state);
    Results<V> results(arguments, plan);
    for_each_piece(plan, range, [&](const RangePiece& piece) {
      consumer.compute(piece);
      results.take(piece, range.gang, range.member, consumer);
    });

    consumer.finish();
    for_each_piece(plan, range, [&](const RangePiece& piece) {
      if (piece.contributors > 1) results.join(piece, range.gang, range.member);
    });
  }
#endif
}

/// The driver's function that makes tensor maps, found without linking the driver's library.
auto find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
#else
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
#endif
  if (found != cudaDriverEntryPointSuccess) {
    throw_failure("the CUDA driver has no cuTensorMapEncodeTiled; it is older than 12.0");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

/// A pool of `rows` rows of head_dim, by boxes of page_box rows and 64 columns.
CUtensorMap map_boxes(const void* pool, std::int64_t rows, std::int32_t head_dim) {
  static const auto encode = find_encoder();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(head_dim) * 2};
  const cuuint32_t box[2] = {64, page_box};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(pool), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw_failure(cat("describing a KV pool of ", rows, " rows of ", head_dim,
                      " elements to the copy engine failed: CUDA driver error ",
                      static_cast<int>(status)));
  }
  return map;
}

template <int head_dim, int tile_rows>
constexpr int shared_bytes() {
  return static_cast<int>(sizeof(SharedTiles<Variant<head_dim, tile_rows>>));
}

/// Whether this build has the kernel's code for the current device.
template <int head_dim, int tile_rows>
bool prepare() {
  constexpr auto kernel = attend<head_dim, tile_rows>;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of attention");
  if (attributes.sharedSizeBytes < sizeof(SharedState)) return false;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared_bytes<head_dim, tile_rows>()),
        "shared memory of attention");
  return true;
}

template <int head_dim>
bool prepare_both() {
  const bool half = prepare<head_dim, range_half_tile>();
  return prepare<head_dim, range_wide_tile>() && half;
}

template <int head_dim, int tile_rows>
void launch(const Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes<head_dim, tile_rows>();
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, attend<head_dim, tile_rows>, arguments), "tree attention");
  check_launch("tree attention");
}

template <int head_dim>
void launch(std::int32_t padded_rows, const Arguments& arguments, std::int32_t blocks,
            cudaStream_t stream) {
  if (range_row_tile_for(padded_rows, arguments.group) == range_half_tile) {
    launch<head_dim, range_half_tile>(arguments, blocks, stream);
  } else {
    launch<head_dim, range_wide_tile>(arguments, blocks, stream);
  }
}

}  // namespace hopper

std::int32_t prepare_hopper_attention(std::int32_t head_dim) {
  int device = 0;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  if (major != 9 || minor != 0) return 0;
  const bool present = head_dim == 128  ? hopper::prepare_both<128>()
                       : head_dim == 64 ? hopper::prepare_both<64>()
                                        : false;
  return present ? multiprocessors : 0;
}

void hopper_attention(const PassView& pass, std::int32_t padded_rows, const float* q,
                      std::int64_t q_stride, const AttentionShape& shape, float scale,
                      const KvLayout& layout, const void* keys, const void* values,
                      std::int32_t layer, void* out, const AttentionScratch& scratch,
                      std::int32_t blocks, cudaStream_t stream) {
  constexpr double log2_e = 1.4426950408889634;
  const std::int64_t layer_begin =
      std::int64_t{layer} * layout.pages * layout.kv_heads * layout.page_size * layout.head_dim;
  hopper::Arguments arguments{};
  const std::int64_t layer_rows = std::int64_t{layout.pages} * layout.kv_heads * layout.page_size;
  const std::int64_t pool_rows = layer_rows * layout.layers;
  arguments.has_boxes = layout.page_size % hopper::page_box == 0 && pool_rows <= INT_MAX;
  if (arguments.has_boxes) {
    arguments.key_boxes = hopper::map_boxes(keys, pool_rows, layout.head_dim);
    arguments.value_boxes = hopper::map_boxes(values, pool_rows, layout.head_dim);
    arguments.first_pool_row = static_cast<std::int32_t>(layer_rows * layer);
  }
  arguments.pass = pass;
  arguments.q = q;
  arguments.q_stride = q_stride;
  arguments.keys = static_cast<const __nv_bfloat16*>(keys) + layer_begin;
  arguments.values = static_cast<const __nv_bfloat16*>(values) + layer_begin;
  arguments.page_size = layout.page_size;
  arguments.page_shift = std::has_single_bit(static_cast<unsigned>(layout.page_size))
                             ? std::countr_zero(static_cast<unsigned>(layout.page_size))
                             : -1;
  arguments.kv_heads = shape.kv_heads;
  arguments.group = shape.heads / shape.kv_heads;
  arguments.group_inverse = static_cast<std::uint32_t>(
      ((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(arguments.group) - 1) /
      static_cast<std::uint64_t>(arguments.group));
  arguments.score_scale = static_cast<float>(log2_e * static_cast<double>(scale));
  arguments.out = static_cast<__nv_bfloat16*>(out);
  arguments.partial_out = scratch.partial_out;
  arguments.partial_lse = scratch.partial_lse;
  arguments.tickets = scratch.tickets;
  if (shape.head_dim == 128) {
    hopper::launch<128>(padded_rows, arguments, blocks, stream);
  } else {
    hopper::launch<64>(padded_rows, arguments, blocks, stream);
  }
}

}  // namespace coppice::cuda
