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

template <int row_blocks>
bool prepare() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, stream_weights<row_blocks>), "attributes of a product");
  if (attributes.sharedSizeBytes < sizeof(SharedState<row_blocks>)) return false;
  check(cudaFuncSetAttribute(stream_weights<row_blocks>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, stages_bytes),
        "shared memory of a product");
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, stream_weights<row_blocks>,
                                                      threads, stages_bytes),
        "occupancy of a product");
  return resident > 0;
}

/// Matrix [rows, in] by boxes of `box_rows` rows and stage_inputs columns.
CUtensorMap map_matrix(const void* matrix, std::int64_t rows, std::int64_t in,
                       std::uint32_t box_rows, const char* what) {
  const std::uint64_t sizes[] = {64, static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(in / 64)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(in) * 2, 128};
  const std::uint32_t box[] = {64, box_rows, stage_inputs / 64};
  return make_tensor_map(matrix, sizes, strides, box, what);
}

template <int row_blocks>
void launch(const Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  launch_early(stream_weights<row_blocks>, dim3(static_cast<unsigned>(blocks)), threads,
               stages_bytes, stream, arguments);
  check_launch("streamed product");
}

}  // namespace streamed

std::int32_t prepare_streamed_linear() {
  int device = 0, major = 0, multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  if (major != 9) return 0;
  const bool present = streamed::prepare<1>() && streamed::prepare<2>() && streamed::prepare<4>();
  return present ? multiprocessors : 0;
}

bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows) {
  return rows >= 1 && rows <= most_streamed_rows && in % 64 == 0 && in <= INT_MAX &&
         out_features <= INT_MAX - streamed::tile_outputs;
}

void streamed_linear(const void* x, const void* weights, const float* bias, std::int32_t rows,
                     std::int64_t in, std::int64_t out_features, float* out, bool accumulate,
                     std::int32_t blocks, cudaStream_t stream) {
  using namespace streamed;
  const int row_blocks = rows <= 8 ? 1 : rows <= 16 ? 2 : 4;
  const std::int64_t tiles = ceil_div(out_features, tile_outputs);
  const std::int64_t grid = std::min<std::int64_t>(blocks, tiles);
  const std::int64_t most_of_block = ceil_div(tiles, grid);
  Arguments arguments{};
  arguments.weights = map_matrix(weights, out_features, in, tile_outputs, "weights");
  arguments.x =
      map_matrix(x, rows, in, static_cast<std::uint32_t>(8 * row_blocks), "a product's input");
  arguments.bias = bias;
  arguments.out = out;
  arguments.rows = rows;
  arguments.out_features = static_cast<std::int32_t>(out_features);
  arguments.tiles = static_cast<std::int32_t>(tiles);
  arguments.stage_count = static_cast<std::int32_t>(ceil_div(in, stage_inputs));
  arguments.accumulate = accumulate;
  // A block's tiles in as many equal rounds as they need.
  const std::int64_t rounds = ceil_div(most_of_block, most_tiles);
  arguments.round_tiles = static_cast<std::int32_t>(ceil_div(most_of_block, rounds));
  const int bytes = stage_bytes(arguments.round_tiles, row_blocks);
  arguments.stages = std::min(stages_bytes / bytes, most_stages);
  const auto launch_for = row_blocks == 1 ? launch<1> : row_blocks == 2 ? launch<2> : launch<4>;
  launch_for(arguments, static_cast<std::int32_t>(grid), stream);
}

}  // namespace coppice::cuda
