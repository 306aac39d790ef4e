#include <algorithm>
#include <array>
#include <climits>

#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/cuda/attention/tensor_map.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/linear/streamed_narrow.cuh"
#include "kernels/cuda/linear/streamed_wide.cuh"

namespace coppice::cuda {
namespace streamed {
namespace {

using Kernel = void (*)(Arguments);

std::uint32_t box(std::int64_t value) { return static_cast<std::uint32_t>(value); }

constexpr std::int32_t most_narrow_rows = 16;
/// What kernels of more are made for.
constexpr std::array<std::int32_t, 6> wide_rows = {32, 48, 64, 72, 80, most_streamed_rows};
/// Leaves room beside it for the kernels before.
constexpr std::int32_t narrow_bytes = 160 * 1024;
constexpr std::int32_t wide_bytes = 216 * 1024;
constexpr std::int32_t wide_stage_bytes = 36 * 1024;  ///< or two parts, where three stages fit
/// Where two blocks that share the inputs would have no more tiles than these, and there are so
/// many inputs, they do: else they would read more of x than of the weights.
constexpr std::int32_t most_split_tiles = 8;
constexpr std::int64_t least_split_inputs = 2048;

/// How a launch divides its tiles and uses its shared memory.
struct Tiling {
  std::int32_t rows;   ///< that instructions have
  std::int32_t split;  ///< blocks of a cluster
  std::int32_t clusters, tiles, larger, rounds, round_tiles;
  std::int32_t parts, stage_bytes, stages, sums_at, shared_bytes;

  Tiling(Ending ending, std::int64_t all, const StreamedProduct& product) {
    const bool narrow = product.rows <= most_narrow_rows;
    rows = narrow ? (product.rows <= 8 ? 8 : most_narrow_rows)
                  : *std::lower_bound(wide_rows.begin(), wide_rows.end(), product.rows);
    const bool share = !narrow && ending != Ending::gated && product.in >= least_split_inputs &&
                       all <= std::int64_t{most_split_tiles} * (product.blocks / 2);
    split = share ? 2 : 1;
    clusters = narrowed(std::min<std::int64_t>(product.blocks / split, all));
    tiles = narrowed(all / clusters);
    larger = narrowed(all % clusters);
    const std::int32_t most = tiles + (larger > 0 ? 1 : 0);
    rounds = narrowed(ceil_div(most, most_tiles));
    round_tiles = narrowed(ceil_div(most, rounds));
    const std::int32_t part_bytes = round_tiles * tile_bytes + rows * part_row_bytes;
    if (narrow) {
      const std::int32_t sums = sharing_warps(round_tiles) * rows * row_bytes(round_tiles);
      parts = narrow_parts(round_tiles);
      stage_bytes = parts * part_bytes;
      stages = std::min((narrow_bytes - sums) / stage_bytes, most_stages);
      sums_at = stages * stage_bytes;
      shared_bytes = sums_at + sums;
    } else {
      constexpr std::int32_t room = wide_bytes - slack_bytes;
      parts = std::clamp(wide_stage_bytes / part_bytes, 3 * 2 * part_bytes <= room ? 2 : 1,
                         32 / round_tiles);
      stage_bytes = parts * part_bytes;
      stages = std::min(room / stage_bytes, most_stages);
      sums_at = 0;
      shared_bytes = std::max(
          stages * stage_bytes + slack_bytes,
          rows * (row_bytes(products_of(round_tiles) * product_tiles) + row_bytes(product_tiles)));
    }
  }
  /// Returns the bytes of a row of sums.
  static std::int32_t row_bytes(std::int32_t of_tiles) {
    return sums_stride(of_tiles * tile_outputs) * 4;
  }
};

template <Ending ending, int rows>
Kernel wide_kernel(const Tiling& tiling) {
  constexpr int one_product_tiles = warpgroups * product_tiles;
  if constexpr (ending != Ending::gated) {
    static_assert(most_split_tiles <= one_product_tiles);
    if (tiling.split == 2) return stream_wide<ending, rows, 1, 2>;
  }
  return tiling.round_tiles > one_product_tiles ? stream_wide<ending, rows, 2, 1>
                                                : stream_wide<ending, rows, 1, 1>;
}
template <Ending ending>
Kernel kernel_for(const Tiling& tiling) {
  switch (tiling.rows) {
    case 8:
      return stream_narrow<ending, 1>;
    case 16:
      return stream_narrow<ending, 2>;
    case 32:
      return wide_kernel<ending, 32>(tiling);
    case 48:
      return wide_kernel<ending, 48>(tiling);
    case 64:
      return wide_kernel<ending, 64>(tiling);
    case 72:
      return wide_kernel<ending, 72>(tiling);
    case 80:
      return wide_kernel<ending, 80>(tiling);
    default:
      return wide_kernel<ending, most_streamed_rows>(tiling);
  }
}

/// Sizes, strides and box are those of the weights as Arguments has them, a tile and part a box.
template <Ending ending, std::size_t dimensions>
void launch(const StreamedProduct& product, std::int64_t all_tiles,
            const std::uint64_t (&weight_sizes)[dimensions],
            const std::uint64_t (&weight_strides)[dimensions - 1],
            const std::uint32_t (&weight_box)[dimensions], const Output& output,
            cudaStream_t stream) {
  const Tiling tiling(ending, all_tiles, product);
  Arguments arguments{};
  arguments.weights =
      make_tensor_map(product.weights, weight_sizes, weight_strides, weight_box, "weights");
  const std::uint64_t sizes[] = {64, size(product.rows), size(product.in / 64)};
  const std::uint64_t strides[] = {size(product.in) * 2, 128};
  const std::uint32_t boxes[] = {64, box(tiling.rows), box(tiling.parts)};
  arguments.x = make_tensor_map(product.x, sizes, strides, boxes, "a product's input");
  arguments.output = output;
  arguments.output.bias = product.bias;
  arguments.output.rows = product.rows;
  arguments.output.vectors = output.width % vector_width == 0;
  arguments.tiles = tiling.tiles;
  arguments.larger = tiling.larger;
  arguments.round_tiles = tiling.round_tiles;
  arguments.rounds = tiling.rounds;
  arguments.parts = tiling.parts;
  arguments.stage_bytes = tiling.stage_bytes;
  arguments.stage_count = narrowed(ceil_div(product.in, part_inputs * tiling.parts * tiling.split));
  arguments.stages = tiling.stages;
  arguments.sums_at = tiling.sums_at;
  const Kernel kernel = kernel_for<ending>(tiling);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wide_bytes),
        "shared memory of a product");
  launch_early(kernel,
               {dim3(static_cast<unsigned>(tiling.clusters * tiling.split)),
                static_cast<unsigned>(tiling.split)},
               threads, static_cast<std::size_t>(tiling.shared_bytes), stream, arguments);
}

}  // namespace
}  // namespace streamed

using namespace streamed;

std::int32_t prepare_streamed_linear() {
  int device = 0, major = 0, multiprocessors = 0, most_bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "compute capability");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "shared memory of a block");
  if (major != 9) return 0;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, stream_narrow<Ending::plain, 1>),
        "attributes of a product");
  if (attributes.sharedSizeBytes < sizeof(SharedState)) return 0;  // code of another GPU
  return static_cast<std::size_t>(most_bytes) >= wide_bytes + sizeof(SharedState) ? multiprocessors
                                                                                  : 0;
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
  Output output{};
  output.width = output.stride = narrowed(out_features);
  output.out = out;
  output.accumulate = accumulate;
  launch<Ending::plain>(product, ceil_div(out_features, tile_outputs),
                        {64, size(out_features), size(product.in / 64)},
                        {size(product.in) * 2, 128}, {64, tile_outputs, 1}, output, stream);
}

void streamed_gated_linear(const StreamedProduct& product, Activation activation, std::int64_t n,
                           void* out, cudaStream_t stream) {
  const std::uint64_t row_bytes = size(product.in) * 2;
  Output output{};
  output.width = narrowed(n);
  output.activations = static_cast<__nv_bfloat16*>(out);
  output.activation = activation;
  launch<Ending::gated>(product, ceil_div(n, pair_outputs), {64, size(n), 2, size(product.in / 64)},
                        {row_bytes, size(n) * row_bytes, 128}, {64, pair_outputs, 2, 1}, output,
                        stream);
}

void streamed_qkv(const StreamedProduct& product, const RopeTensors& tensors, cudaStream_t stream) {
  const std::int64_t half = tensors.half_dim;
  const std::int64_t heads = all_heads(tensors);
  const std::uint64_t row_bytes = size(product.in) * 2;
  Output output{};
  output.width = narrowed(heads * 2 * half);
  output.rope = tensors;
  launch<Ending::rotated>(product, heads * (half / pair_outputs),
                          {64, size(half), 2, size(heads), size(product.in / 64)},
                          {row_bytes, size(half) * row_bytes, size(2 * half) * row_bytes, 128},
                          {64, pair_outputs, 2, 1, 1}, output, stream);
}

}  // namespace coppice::cuda
