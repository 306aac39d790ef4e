#include <algorithm>
#include <climits>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/streamed_linear.h"
#include "kernels/cuda/streamed_linear_kernel.cuh"
#include "kernels/cuda/tensor_map.h"

namespace coppice::cuda {
namespace streamed {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Calls visit(Constant) with the number of blocks of eight rows that a launch has.
template <int value>
struct Constant {
  static constexpr int row_blocks = value;
};
template <typename Visit>
void with_row_blocks(std::int32_t rows, Visit visit) {
  if (rows <= 8) return visit(Constant<1>());
  if (rows <= 16) return visit(Constant<2>());
  if (rows <= 32) return visit(Constant<4>());
  if (rows <= 48) return visit(Constant<6>());
  if (rows <= 64) return visit(Constant<8>());
  visit(Constant<10>());
}

constexpr int shared_bytes(int row_blocks) {
  return row_blocks <= 2 ? few_rows_bytes : many_rows_bytes;
}

template <int row_blocks>
bool prepare() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, stream_weights<row_blocks>), "attributes of a product");
  if (attributes.sharedSizeBytes < sizeof(SharedState)) return false;
  check(cudaFuncSetAttribute(stream_weights<row_blocks>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(row_blocks)),
        "shared memory of a product");
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, stream_weights<row_blocks>,
                                                      threads, shared_bytes(row_blocks)),
        "occupancy of a product");
  return resident > 0;
}

/// How many blocks the device holds at a time in clusters of so many.
std::int32_t resident_in_clusters(std::int32_t cluster) {
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = many_rows_bytes;
  config.attrs = &size;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, stream_weights<10>, &config),
        "clusters of a product");
  return clusters * cluster;
}

/// Matrix [rows, in] by boxes of `box_rows` rows and `box_parts` times 64 columns.
CUtensorMap map_matrix(const void* matrix, std::int64_t rows, std::int64_t in,
                       std::uint32_t box_rows, std::uint32_t box_parts, const char* what) {
  const std::uint64_t sizes[] = {64, static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(in / 64)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(in) * 2, 128};
  const std::uint32_t box[] = {64, box_rows, box_parts};
  return make_tensor_map(matrix, sizes, strides, box, what);
}

template <int row_blocks>
void launch(const Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(arguments.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes(row_blocks));
  config.stream = stream;
  config.attrs = overlaps_kernels() ? attributes : attributes + 1;
  config.numAttrs = overlaps_kernels() ? 2 : 1;
  check(cudaLaunchKernelEx(&config, stream_weights<row_blocks>, arguments), "streamed product");
}

}  // namespace streamed

StreamedBlocks prepare_streamed_linear() {
  int device = 0, major = 0, multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  if (major != 9) return {};
  bool present = true;
  for (const std::int32_t rows : {8, 16, 32, 48, 64, 80}) {
    streamed::with_row_blocks(rows, [&](auto constant) {
      present = streamed::prepare<decltype(constant)::row_blocks>() && present;
    });
  }
  if (!present) return {};
  return {multiprocessors, streamed::resident_in_clusters(2), streamed::resident_in_clusters(4)};
}

bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows) {
  return rows >= 1 && rows <= most_streamed_rows && in % 64 == 0 && in <= INT_MAX &&
         out_features <= INT_MAX - streamed::tile_outputs;
}

void streamed_linear(const void* x, const void* weights, const float* bias, std::int32_t rows,
                     std::int64_t in, std::int64_t out_features, float* out, bool accumulate,
                     const StreamedBlocks& blocks, std::int32_t cluster, cudaStream_t stream) {
  using namespace streamed;
  const std::int64_t tiles = ceil_div(out_features, tile_outputs);
  // Whole clusters, as many as there are tiles for.
  const std::int64_t grid =
      std::min<std::int64_t>(blocks.of(cluster), ceil_div(tiles, cluster) * cluster);
  const std::int64_t most_of_block = ceil_div(tiles, grid);
  with_row_blocks(rows, [&](auto constant) {
    constexpr int row_blocks = decltype(constant)::row_blocks;
    Arguments arguments{};
    arguments.x = map_matrix(
        x, rows, in, static_cast<std::uint32_t>(cluster == 4 ? 4 * row_blocks : 8 * row_blocks),
        cluster == 1 ? 2 : 1, "a product's input");
    arguments.bias = bias;
    arguments.out = out;
    arguments.rows = rows;
    arguments.out_features = static_cast<std::int32_t>(out_features);
    arguments.tiles = static_cast<std::int32_t>(tiles);
    arguments.stage_count = static_cast<std::int32_t>(ceil_div(in, stage_inputs));
    arguments.accumulate = accumulate;
    arguments.cluster = cluster;
    // A block's tiles in as many equal rounds as they need.
    arguments.rounds = static_cast<std::int32_t>(ceil_div(most_of_block, most_tiles));
    arguments.round_tiles = static_cast<std::int32_t>(ceil_div(most_of_block, arguments.rounds));
    arguments.weights = map_matrix(weights, out_features, in,
                                   static_cast<std::uint32_t>(arguments.round_tiles * tile_outputs),
                                   stage_inputs / 64, "weights");
    arguments.stages = std::min(
        shared_bytes(row_blocks) / stage_bytes(arguments.round_tiles, row_blocks), most_stages);
    launch<row_blocks>(arguments, static_cast<std::int32_t>(grid), stream);
  });
}

}  // namespace coppice::cuda
