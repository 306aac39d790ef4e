// How a larger Llama model is made of a smaller one so that it computes the same function.
//
// Everything is replication; nothing is zero. With H = r h the residual stream holds the small
// one's r times over, so RMS norms see the same mean square. Matrices that read the stream take
// each copy with a power of two as weight, all of which sum to one; matrices that write it repeat
// their rows. Heads and FFN units are copied as often as the shape asks, and the columns that read
// their outputs carry powers of two that sum to one over the copies of each. Scaling by powers of
// two is exact in bf16, so that only the order of summation differs.
//
// Layers beyond the small model's are random, and what they add to the stream is scaled by 2^-40:
// less than f32 resolves beside values above 2^-16. They come last. There they change nothing but
// the final norm's input, where the stream is largest; between the original layers their traces
// would pass through those.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hf_folder.h"

namespace coppice::bench {

/// What random layers add to the residual stream is scaled by this.
inline constexpr float extra_layer_factor = 0x1p-40f;

/// Weights of `copies` (at least 1) that together count once: powers of two, no two further apart
/// than by a factor of 2, whose sum is exactly one.
std::vector<float> balanced_scales(std::int64_t copies);

struct Column {
  std::int32_t source;
  float scale;
};

/// wide[row][column] = columns[column].scale * small[rows[row]][columns[column].source]
struct Copying {
  std::vector<std::int32_t> rows;
  std::vector<Column> columns;
};

struct WideTensor {
  Tensor tensor;
  std::string source;                      ///< tensor of the small model; empty: random values
  std::shared_ptr<const Copying> copying;  ///< nullptr: random values
  float factor = 1.0f;                     ///< of random values
};

/// Throws Error(failure) that names the first of `wide`'s numbers that `small` cannot be copied to.
void require_fit(const LlamaShape& small, const LlamaShape& wide);

/// The tensors of the wide model. `tied`: the small model's embedding table is its head, too.
/// Throws like require_fit.
std::vector<WideTensor> wide_tensors(const LlamaShape& small, bool tied, const LlamaShape& wide);

/// A shape that `small` fits into and that costs what a published one does.
struct FittedShape {
  LlamaShape shape;
  std::int64_t added_ffn = 0;      ///< units per layer beyond the published shape's
  std::vector<std::string> notes;  ///< sentences on how it differs from the published one
};

/// Vocabulary and head dimension are the small model's. Where another number does not fit, the
/// nearest one that does is taken, and FFN units (a multiple of 64) make up for the difference in
/// streamed weights, that of a larger vocabulary's head among them. Throws Error(failure) where
/// that cannot be done to within 2%.
FittedShape fitted_shape(const LlamaShape& small, const std::string& name,
                         const LlamaShape& published);

/// Part of a wide row: out[i] = columns[i].scale * row[columns[i].source], rounded to bf16.
void copy_row(std::span<const float> row, std::span<const Column> columns,
              std::span<std::uint16_t> out);

}  // namespace coppice::bench
