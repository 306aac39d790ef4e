#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/cuda/attention/tensor_map.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/packed_kernel.cuh"
#include "kernels/cuda/linear/packed_linear.h"

namespace coppice::cuda {
namespace packed {
namespace {

using streamed::narrowed;
using streamed::size;
using Launched = void (*)(Arguments);

constexpr std::int32_t most_bytes = 222 * 1024;
/// Weights of a stage: few large copies are faster than many small ones.
constexpr std::int32_t stage_weights = 64 * 1024;
constexpr std::int32_t most_box_bytes = 256 * 8;

/// Blocks of eight rows that kernels have.
std::int32_t row_blocks_of(std::int32_t rows) {
  for (const std::int32_t blocks : {1, 2, 4, 6, 8, 9}) {
    if (rows <= 8 * blocks) return blocks;
  }
  return most_packed_rows / 8;
}

template <int bits, int group, bool minima>
Launched kernel_of(std::int32_t row_blocks) {
  switch (row_blocks) {
    case 1:
      return multiply_packed<bits, group, minima, 1>;
    case 2:
      return multiply_packed<bits, group, minima, 2>;
    case 4:
      return multiply_packed<bits, group, minima, 4>;
    case 6:
      return multiply_packed<bits, group, minima, 6>;
    case 8:
      return multiply_packed<bits, group, minima, 8>;
    default:
      break;
  }
  if constexpr (PackedLayout{bits, group, minima}.e4m3()) {
    return nullptr;  // most_rows()
  } else {
    return row_blocks == 9 ? multiply_packed<bits, group, minima, 9>
                           : multiply_packed<bits, group, minima, most_packed_rows / 8>;
  }
}

Launched kernel_of(const PackedLayout& layout, std::int32_t row_blocks) {
  if (layout.bits == 4) {
    return layout.minima ? kernel_of<4, 32, true>(row_blocks) : kernel_of<4, 32, false>(row_blocks);
  }
  if (layout.e4m3()) return kernel_of<8, 64, false>(row_blocks);
  if (layout.group == 16) return kernel_of<8, 16, false>(row_blocks);
  return layout.minima ? kernel_of<8, 32, true>(row_blocks) : kernel_of<8, 32, false>(row_blocks);
}

/// Of a launch. E4M3's sums are scaled later, for which more registers would be needed.
std::int32_t most_rows(const PackedLayout& layout) {
  return layout.e4m3() ? most_own_rows : most_packed_rows;
}

/// Slices follow from the tiles of a block, so that sums do not depend on rows: few tiles would
/// leave warps without work.
std::int32_t slices_of(std::int32_t block_tiles) {
  std::int32_t slices = 1;
  while (slices < 8 && most_round_tiles / (2 * slices) >= block_tiles) slices *= 2;
  return slices;
}

/// Launches some rows, at most most_rows().
void launch_rows(const PackedProduct& product, Ending ending, std::int64_t all_tiles, Output output,
                 cudaStream_t stream) {
  Arguments a{};
  const std::int32_t row_blocks = row_blocks_of(product.rows);
  const std::int64_t blocks = std::min<std::int64_t>(product.blocks, all_tiles);
  a.tiles = narrowed(all_tiles / blocks);
  a.larger = narrowed(all_tiles % blocks);
  const std::int32_t most = a.tiles + (a.larger > 0 ? 1 : 0);
  a.slices = slices_of(most);
  const std::int32_t round = most_round_tiles / a.slices;
  a.rounds = narrowed(ceil_div(most, round));
  a.round_tiles = narrowed(ceil_div(most, a.rounds));
  a.all_parts = narrowed(product.in / packed_part);
  a.slice_parts = narrowed(ceil_div(a.all_parts, a.slices));

  const std::int32_t sums_bytes = a.slices * 8 * row_blocks *
                                  streamed::sums_stride(a.round_tiles * tile_outputs) *
                                  narrowed(sizeof(float));
  const std::int32_t weights_bytes = a.slices * 2 * a.round_tiles * product.layout.part_bytes();
  a.stage_parts =
      std::clamp(stage_weights / weights_bytes, 1, most_box_bytes / product.layout.part_bytes());
  const auto up_to = [](std::int32_t bytes, std::int32_t unit) {
    return (bytes + unit - 1) / unit * unit;
  };
  const auto fitting = [&] {
    const std::int32_t side = a.stage_parts * product.layout.part_bytes();
    a.side_bytes = ending == Ending::gated ? a.round_tiles * side : side;
    a.tile_bytes = ending == Ending::gated     ? side
                   : ending == Ending::rotated ? up_to(2 * side, 128)
                                               : 2 * side;
    a.slice_bytes =
        up_to(a.round_tiles * (ending == Ending::gated ? 2 * a.tile_bytes : a.tile_bytes), 128);
    const std::int32_t x_bytes = a.stage_parts * row_blocks * 8 * x_row_bytes;
    a.stage_bytes = up_to(a.slices * (x_bytes + a.slice_bytes), 1024);
    return most_bytes / a.stage_bytes;
  };
  while (a.stage_parts > 1 && fitting() < 2) --a.stage_parts;
  a.stages = std::min(fitting(), streamed::most_stages);
  a.stage_count = narrowed(ceil_div(a.slice_parts, a.stage_parts));
  a.stages = std::min(a.stages, std::max(a.stage_count * a.rounds, 1));
  const std::int32_t shared_bytes = std::max(a.stages * a.stage_bytes, sums_bytes);

  const std::uint64_t sizes[] = {64, size(product.rows), size(a.all_parts)};
  const std::uint64_t strides[] = {size(product.in) * 2, 128};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(8 * row_blocks),
                               static_cast<std::uint32_t>(a.stage_parts)};
  a.x = make_tensor_map(product.x, sizes, strides, box, "a product's input");
  const std::uint64_t side_bytes = size(packed_bytes(product.layout, packed_side, product.in));
  const std::uint64_t words = side_bytes / 8;
  const std::uint64_t sides =
      ending == Ending::plain ? size(ceil_div(output.width, packed_side)) : size(all_tiles) * 2;
  const auto box_words =
      static_cast<std::uint32_t>(a.stage_parts * product.layout.part_bytes() / 8);
  const auto tiles = static_cast<std::uint32_t>(a.round_tiles);
  if (ending == Ending::plain) {
    a.weights = make_word_map(product.weights, std::array{words, sides, size(1)},
                              std::array{side_bytes, side_bytes * sides},
                              std::array{box_words, 2 * tiles, 1u}, "weights");
  } else if (ending == Ending::gated) {
    a.weights = make_word_map(product.weights, std::array{words, sides / 2, size(2)},
                              std::array{side_bytes, side_bytes * sides / 2},
                              std::array{box_words, tiles, 2u}, "weights");
  } else {
    const std::uint64_t half = size(output.rope.half_dim / pair_outputs);
    a.weights = make_word_map(product.weights,
                              std::array{words, half, size(2), size(all_heads(output.rope))},
                              std::array{side_bytes, side_bytes * half, side_bytes * half * 2},
                              std::array{box_words, 1u, 2u, 1u}, "weights");
  }
  a.output = output;
  a.output.bias = product.bias;
  a.output.rows = product.rows;
  a.ending = ending;
  const Launched kernel = kernel_of(product.layout, row_blocks);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory of a product");
  launch_early(kernel, {dim3(static_cast<unsigned>(blocks))},
               static_cast<unsigned>(threads_of(row_blocks)),
               static_cast<std::size_t>(shared_bytes), stream, a);
}

RopeTensors rows_from(RopeTensors tensors, std::int64_t row) {
  tensors.positions += row;
  tensors.slots += row;
  tensors.qkv += row * all_heads(tensors) * tensors.head_dim;
  return tensors;
}

/// output_from(row): what the output is from that row on.
template <typename OutputFrom>
void launch(PackedProduct product, Ending ending, std::int64_t all_tiles, OutputFrom output_from,
            cudaStream_t stream) {
  const std::int32_t rows = product.rows;
  const auto* x = static_cast<const __nv_bfloat16*>(product.x);
  // Equal shares, of whole blocks of eight.
  const auto shares = ceil_div(rows, most_rows(product.layout));
  const std::int32_t share = narrowed(ceil_div(ceil_div(rows, shares), 8) * 8);
  for (std::int32_t row = 0; row < rows; row += share) {
    product.rows = std::min(rows - row, share);
    product.x = x + row * product.in;
    launch_rows(product, ending, all_tiles, output_from(row), stream);
  }
}

}  // namespace
}  // namespace packed

using namespace packed;

void packed_linear(const PackedProduct& product, std::int64_t out_features, float* out,
                   std::int64_t stride, bool accumulate, cudaStream_t stream) {
  Output output{};
  output.width = narrowed(out_features);
  output.stride = narrowed(stride);
  output.vectors = out_features % vector_width == 0 && stride % vector_width == 0;
  output.accumulate = accumulate;
  launch(
      product, Ending::plain, ceil_div(out_features, tile_outputs),
      [&](std::int32_t row) {
        output.out = out + row * stride;
        return output;
      },
      stream);
}

void packed_gated_linear(const PackedProduct& product, Activation activation, std::int64_t n,
                         void* out, cudaStream_t stream) {
  Output output{};
  output.width = narrowed(n);
  output.vectors = n % vector_width == 0;
  output.activation = activation;
  launch(
      product, Ending::gated, n / pair_outputs,
      [&](std::int32_t row) {
        output.activations = static_cast<__nv_bfloat16*>(out) + row * n;
        return output;
      },
      stream);
}

void packed_qkv(const PackedProduct& product, const RopeTensors& tensors, cudaStream_t stream) {
  Output output{};
  output.width = narrowed(all_heads(tensors) * 2 * tensors.half_dim);
  output.vectors = true;
  output.rope = tensors;
  launch(
      product, Ending::rotated, all_heads(tensors) * (tensors.half_dim / pair_outputs),
      [&](std::int32_t row) {
        output.rope = rows_from(tensors, row);
        return output;
      },
      stream);
}

}  // namespace coppice::cuda
