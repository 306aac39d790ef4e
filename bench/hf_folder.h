// Hugging Face folders of known shapes, written without holding them in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace coppice::bench {

enum class ShapeFamily {
  llama,
  qwen3,   ///< with norms of query and key heads
  gemma3,  ///< with these, norms after attention and FFN, and windows in five layers of six
};

struct ModelShape {
  std::int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, context;
  ShapeFamily family = ShapeFamily::llama;
  std::int64_t window = 0;  ///< of Gemma 3

  /// Weights that a forward pass reads: the layers' products and the head. The embedding table,
  /// of which a pass reads single rows, and the norms are left out.
  std::int64_t streamed_parameters() const;
};

/// Shapes of published models, by name, and `one-layer`: of that one long prompts take seconds.
const std::map<std::string, ModelShape>& known_shapes();
/// The names, separated by spaces.
std::string known_shape_names();

/// One bf16 tensor of a folder.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< [out, in], or [in] for a norm
  std::uint64_t begin = 0;          ///< bytes of all tensors before it
  std::uint64_t values = 0;
  bool is_norm = false;
  float norm = 1.0f;  ///< a norm's random values: those that count as 1

  std::uint64_t bytes() const { return 2 * values; }
  std::uint64_t end() const { return begin + bytes(); }
};

/// All tensors of an untied model, in the order in which they are stored.
std::vector<Tensor> tensors_of(const ModelShape& shape);
/// config.json of an untied bf16 model, as its family's published ones are.
nlohmann::ordered_json config_of(const ModelShape& shape);

/// Values first, first + 1, ... of a random tensor: uniform with deviation 1 / sqrt(in), which
/// keeps activations near 1, times `factor`; norms are Tensor::norm. They depend on the tensor's
/// place
/// (`begin`), on where blocks start and on nothing else.
void fill_random(const Tensor& tensor, std::uint64_t first, float factor,
                 std::span<std::uint16_t> out);

/// Makes values first, first + 1, ... of tensors[index], bf16. Called by several threads.
using FillTensor =
    std::function<void(std::size_t index, std::uint64_t first, std::span<std::uint16_t> out)>;
/// Called now and then by the writing function's own thread with the bytes written; may throw,
/// which ends the writing.
using BytesWritten = std::function<void(std::uint64_t bytes)>;

/// Writes one safetensors file of consecutive tensors. Throws Error(failure), with the system's
/// reason, or what `fill` or `progress` throws; the file is then incomplete.
void write_tensor_file(const std::filesystem::path& file, std::span<const Tensor> tensors,
                       const std::map<std::string, std::string>& metadata, const FillTensor& fill,
                       const BytesWritten& progress = {});

/// Writes a small file in full, under another name until it is complete. Throws Error(failure).
void write_text_file(const std::filesystem::path& file, const std::string& text);

}  // namespace coppice::bench
