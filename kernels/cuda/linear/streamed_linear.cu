#include <algorithm>
#include <climits>

#include "kernels/cuda/attention/tensor_map.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/linear/streamed_linear_kernel.cuh"

namespace coppice::cuda {
namespace streamed {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::uint64_t size(std::int64_t value) { return static_cast<std::uint64_t>(value); }
std::uint32_t box(std::int64_t value) { return static_cast<std::uint32_t>(value); }

template <int row_blocks>
bool prepare() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, stream_weights<row_blocks>), "attributes of a product");
  if (attributes.sharedSizeBytes < sizeof(SharedState)) return false;  // code of another GPU
  check(cudaFuncSetAttribute(stream_weights<row_blocks>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory of a product");
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, stream_weights<row_blocks>,
                                                      threads, shared_bytes),
        "occupancy of a product");
  return resident > 0;
}

/// Tiles of a launch and how blocks take them.
struct Tiling {
  std::int64_t tiles;
  std::int64_t grid;
  std::int32_t rounds, round_tiles;
  std::int32_t parts;  ///< of a stage

  Tiling(Ending ending, std::int64_t all, std::int32_t blocks)
      : tiles(all), grid(std::min<std::int64_t>(blocks, all)) {
    // A block's tiles in as many equal rounds as they need.
    const std::int64_t most_of_block = ceil_div(tiles, grid);
    rounds = static_cast<std::int32_t>(ceil_div(most_of_block, most_tiles));
    round_tiles = static_cast<std::int32_t>(ceil_div(most_of_block, rounds));
    parts = parts_of_stage(ending, round_tiles);
  }
};

template <int row_blocks>
void launch(const StreamedProduct& product, const CUtensorMap& weights, const Output& output,
            const Tiling& tiling, cudaStream_t stream) {
  Arguments arguments{};
  arguments.weights = weights;
  const std::uint64_t sizes[] = {64, size(product.rows), size(product.in / 64)};
  const std::uint64_t strides[] = {size(product.in) * 2, 128};
  const std::uint32_t boxes[] = {64, 8 * row_blocks, box(tiling.parts)};
  arguments.x = make_tensor_map(product.x, sizes, strides, boxes, "a product's input");
  arguments.output = output;
  arguments.output.bias = product.bias;
  arguments.output.rows = product.rows;
  arguments.output.tiles = static_cast<std::int32_t>(tiling.tiles);
  arguments.round_tiles = tiling.round_tiles;
  arguments.parts = tiling.parts;
  arguments.stage_bytes = stage_bytes(output.ending, tiling.round_tiles, row_blocks);
  arguments.stage_count =
      static_cast<std::int32_t>(ceil_div(product.in, part_inputs * tiling.parts));
  arguments.rounds = tiling.rounds;
  arguments.stages = std::min(shared_bytes / arguments.stage_bytes, most_stages);
  launch_early(stream_weights<row_blocks>, dim3(static_cast<unsigned>(tiling.grid)), threads,
               shared_bytes, stream, arguments);
}

void launch_for_rows(const StreamedProduct& product, const CUtensorMap& weights,
                     const Output& output, const Tiling& tiling, cudaStream_t stream) {
  const auto launch_rows = product.rows <= 8    ? launch<1>
                           : product.rows <= 16 ? launch<2>
                                                : launch<4>;
  launch_rows(product, weights, output, tiling, stream);
}

}  // namespace
}  // namespace streamed

using namespace streamed;

std::int32_t prepare_streamed_linear() {
  int device = 0, major = 0, multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  if (major != 9 || !prepare<1>() || !prepare<2>() || !prepare<4>()) return 0;
  return multiprocessors;
}

bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows) {
  return rows >= 1 && rows <= most_streamed_rows && in % 64 == 0 && in <= INT_MAX &&
         out_features <= INT_MAX - tile_outputs;
}

bool can_rotate(const RopeTensors& tensors) {
  return takes_pairs(tensors) && tensors.head_dim % tile_outputs == 0;
}

void streamed_linear(const StreamedProduct& product, std::int64_t out_features, float* out,
                     bool accumulate, cudaStream_t stream) {
  const Tiling tiling(Ending::plain, ceil_div(out_features, tile_outputs), product.blocks);
  const std::uint64_t sizes[] = {64, size(out_features), size(product.in / 64)};
  const std::uint64_t strides[] = {size(product.in) * 2, 128};
  const std::uint32_t boxes[] = {64, box(tiling.round_tiles * tile_outputs), box(tiling.parts)};
  Output output{};
  output.ending = Ending::plain;
  output.width = static_cast<std::int32_t>(out_features);
  output.out = out;
  output.accumulate = accumulate;
  launch_for_rows(product, make_tensor_map(product.weights, sizes, strides, boxes, "weights"),
                  output, tiling, stream);
}

void streamed_gated_linear(const StreamedProduct& product, Activation activation, std::int64_t n,
                           void* out, cudaStream_t stream) {
  const Tiling tiling(Ending::gated, ceil_div(n, pair_outputs), product.blocks);
  const std::uint64_t row_bytes = size(product.in) * 2;
  const std::uint64_t sizes[] = {64, size(n), 2, size(product.in / 64)};
  const std::uint64_t strides[] = {row_bytes, size(n) * row_bytes, 128};
  const std::uint32_t boxes[] = {64, box(tiling.round_tiles * pair_outputs), 2, box(tiling.parts)};
  Output output{};
  output.ending = Ending::gated;
  output.width = static_cast<std::int32_t>(n);
  output.activations = static_cast<__nv_bfloat16*>(out);
  output.activation = activation;
  launch_for_rows(product, make_tensor_map(product.weights, sizes, strides, boxes, "weights"),
                  output, tiling, stream);
}

void streamed_qkv(const StreamedProduct& product, const RopeTensors& tensors, cudaStream_t stream) {
  const std::int64_t half = tensors.half_dim;
  const std::int64_t heads = all_heads(tensors);
  const Tiling tiling(Ending::rotated, heads * (half / pair_outputs), product.blocks);
  const std::uint64_t row_bytes = size(product.in) * 2;
  const std::uint64_t sizes[] = {64, size(half), 2, size(heads), size(product.in / 64)};
  const std::uint64_t strides[] = {row_bytes, size(half) * row_bytes, size(2 * half) * row_bytes,
                                   128};
  const std::uint32_t boxes[] = {64, pair_outputs, 2, 1, box(tiling.parts)};
  Output output{};
  output.ending = Ending::rotated;
  output.width = static_cast<std::int32_t>(heads * 2 * half);
  output.rope = tensors;
  launch_for_rows(product, make_tensor_map(product.weights, sizes, strides, boxes, "weights"),
                  output, tiling, stream);
}

}  // namespace coppice::cuda
