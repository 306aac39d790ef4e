// How a larger model is made of a smaller Llama so that it computes the same function.
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
//
// Qwen 3 and Gemma 3 norm what Llama does not: query and key heads, and what attention and FFN add
// to the stream. x / sqrt(mean(x^2) + epsilon) is x / sqrt(epsilon) where epsilon is far larger
// than x^2, and the norm's weight undoes that. So the stream is scaled up (FamilyScales), and with
// it epsilon, which the norms of the stream then see as they did before. Gemma's heads may have
// several times the small model's elements: of each rotated pair, the frequencies between those of
// the small model get random values scaled by 2^-40.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hf_folder.h"

namespace coppice::bench {

/// What random layers add to the residual stream, and rows of queries and keys that stand for
/// nothing, are scaled by this.
inline constexpr float extra_layer_factor = 0x1p-40f;

/// What matrices of layers beyond the small model's hold. A file's zeros take no room on a disk
/// that keeps files with holes: so shapes fit that do not otherwise. What zeros cost on a GPU is
/// what other weights cost where memory limits, and less power where arithmetic does.
enum class ExtraLayers { random, zero };

/// How a family's norms are kept from changing anything. Products with them are exact.
struct FamilyScales {
  float embedding = 1.0f;  ///< of the stored table
  float stream = 1.0f;     ///< of the stream: with Gemma's embeddings' sqrt(hidden), in bf16
  float idle_norm = 0.0f;  ///< weight of norms that are to change nothing
  double epsilon = 0.0;    ///< idle_norm^2: the small model's times stream^2, within a factor of 2
};
FamilyScales scales_of(const ModelShape& wide, double small_epsilon);

/// Weights of `copies` (at least 1) that together count once: powers of two, no two further apart
/// than by a factor of 2, whose sum is exactly one.
std::vector<float> balanced_scales(std::int64_t copies);

struct Column {
  std::int32_t source;
  float scale;
};

/// wide[row][column] = columns[column].scale * small[rows[row]][columns[column].source] + added.
/// Rows of no_source are random.
struct Copying {
  std::vector<std::int32_t> rows;
  std::vector<Column> columns;
  float added = 0.0f;

  static constexpr std::int32_t no_source = -1;
};

struct WideTensor {
  Tensor tensor;
  std::string source;                      ///< tensor of the small model; empty: random values
  std::shared_ptr<const Copying> copying;  ///< nullptr: random values
  float factor = 1.0f;                     ///< of random values
};

/// Throws Error(failure) that names the first of `wide`'s numbers that `small` cannot be copied to.
void require_fit(const ModelShape& small, const ModelShape& wide);

/// The tensors of the wide model. `tied`: the small model's embedding table is its head, too;
/// `epsilon`: of its norms. Throws like require_fit.
std::vector<WideTensor> wide_tensors(const ModelShape& small, bool tied, double epsilon,
                                     const ModelShape& wide,
                                     ExtraLayers extra = ExtraLayers::random);

/// A shape that `small` fits into and that costs what a published one does.
struct FittedShape {
  ModelShape shape;
  std::int64_t added_ffn = 0;      ///< units per layer beyond the published shape's
  std::vector<std::string> notes;  ///< sentences on how it differs from the published one
};

/// Vocabulary and head dimension (but for Gemma's) are the small model's. Where another number does
/// not fit, the nearest one that does is taken, and FFN units (a multiple of 64) make up for the
/// difference in streamed weights, that of a larger vocabulary's head among them. Throws
/// Error(failure) where that cannot be done to within 2%.
FittedShape fitted_shape(const ModelShape& small, const std::string& name,
                         const ModelShape& published);

/// Part of a wide row: out[i] = columns[i].scale * row[columns[i].source] + added, rounded to bf16.
void copy_row(std::span<const float> row, std::span<const Column> columns, float added,
              std::span<std::uint16_t> out);

}  // namespace coppice::bench
