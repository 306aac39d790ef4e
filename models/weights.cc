#include "models/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/file_weight_stream.h"
#include "kernels/finite.h"
#include "kernels/narrowed.h"
#include "kernels/weight_stream.h"
#include "models/layer_sums.h"
#include "models/sliced_bytes.h"

namespace coppice {
namespace {

/// Values round as the type does: nearest, ties to even.
float rounded(double value, DType dtype) {
  if (dtype == DType::f32) return static_cast<float>(value);
  const int bits = dtype == DType::f16 ? 11 : 8;  // of the fraction, the leading one included
  const int exponent = std::ilogb(value) + 1 - bits;
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent));
}

class Loader {
 public:
  Loader(const ModelConfig& config, const StoredWeights& stored, const ModelSlice& slice,
         Device& device, const ModelOptions& options, const LoadProgress& progress)
      : config_(config),
        stored_(stored),
        slice_(slice),
        device_(device),
        options_(options),
        progress_(progress),
        parameters_(parameter_count(config)),
        bytes_expected_(2 * parameters_) {}

  ModelWeights load() {
    report();
    std::size_t norms = 0;
    for (const auto& [name, tensor] : stored_.all()) {
      if (!name.ends_with("norm.weight")) continue;
      norms += place_size(tensor.stored->elements());
      weights_.bytes_read += tensor.stored->elements() * sizeof(float);
    }
    weights_.norms = device_.allocate(norms * sizeof(float), "norm weights");
    const bool tied = config_.tie_word_embeddings;
    weights_.head =
        linear({{tied ? "model.embed_tokens" : "lm_head", slice_.vocab}}, options_.max_logit_rows);
    load_embedding();
    for (std::int32_t layer = 0; layer < config_.layers; ++layer) load_layer(layer);
    if (weights_.stream) weights_.stream->begin();
    weights_.final_norm = norm("model.norm");
    stored_.source().require_unchanged();  // else the weights may be of two versions
    if (progress_) progress_(1.0);
    return std::move(weights_);
  }

 private:
  using Tensor = StoredWeights::Tensor;

  HostBytes bytes_of(const Tensor& tensor) const {
    return HostBytes::Read([this, &tensor](std::size_t offset, std::span<std::byte> to) {
      stored_.source().read(tensor.name, offset, to);
    });
  }

  /// Norms begin at multiples of 256 bytes.
  static std::size_t place_size(std::uint64_t values) { return (values + 63) / 64 * 64; }

  [[noreturn]] void refuse_non_finite(const Tensor& tensor) const {
    throw_failure(cat(stored_.source().file_name(tensor.name), ": tensor ", tensor.name,
                      " holds NaN or infinity; fetch the file again"));
  }

  /// The same bytes; reading them throws when one of their values is not finite. Blocks that are
  /// asked for hold whole values.
  HostBytes checked(const Tensor& tensor) const {
    return HostBytes::Read([this, &tensor](std::size_t offset, std::span<std::byte> to) {
      stored_.source().read(tensor.name, offset, to);
      const std::optional<DType> plain = dtype_of(tensor.format);
      if (options_.check_finite &&
          (plain ? has_non_finite(to, *plain) : has_non_finite_scale(tensor.format, to))) {
        refuse_non_finite(tensor);
      }
    });
  }

  void read_through(const Tensor& tensor) const {
    const HostBytes bytes = checked(tensor);
    const std::uint64_t row = tensor.stored->bytes / tensor.stored->shape.front();
    const std::uint64_t block = std::max<std::uint64_t>(1, (1 << 20) / row) * row;
    std::vector<std::byte> some(block);
    for (std::uint64_t begin = 0; begin < tensor.stored->bytes; begin += block) {
      const std::uint64_t count = std::min(block, tensor.stored->bytes - begin);
      bytes.read(begin, std::span(some).first(count));
    }
  }

  void count(const Tensor& tensor) {
    bytes_done_ += static_cast<std::int64_t>(tensor.stored->bytes);
    const auto stored =
        static_cast<double>(tensor.stored->bytes) / static_cast<double>(tensor.stored->elements());
    bytes_expected_ = std::max(
        bytes_expected_, static_cast<std::int64_t>(static_cast<double>(parameters_) * stored));
  }

  void report() const {
    if (progress_) {
      progress_(
          std::min(1.0, static_cast<double>(bytes_done_) / static_cast<double>(bytes_expected_)));
    }
  }

  std::vector<float> vector(const Tensor& tensor) {
    count(tensor);
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.stored->bytes));
    checked(tensor).read(0, bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.stored->elements()));
    dequantise(tensor.format, bytes, values.data());
    return values;
  }

  const float* norm(const std::string& name) {
    std::vector<float> values = vector(stored_.at(name + ".weight"));
    if (config_.one_based_norms) {
      for (float& value : values) value += 1.0f;
    }
    float* place = weights_.norms.as<float>() + norms_placed_;
    norms_placed_ += place_size(values.size());
    device_.upload(place, values.data(), values.size() * sizeof(float));
    return place;
  }

  /// Outputs of a product by its name, without .weight and .bias.
  struct Outputs {
    std::string name;
    Slice rows;
  };

  std::unique_ptr<LinearWeights> linear(const std::vector<Outputs>& stacked,
                                        std::int32_t max_rows) {
    std::vector<const Tensor*> tensors;  // each once
    std::vector<LinearPart> parts;
    std::vector<float> bias;
    for (const auto& [name, rows] : stacked) {
      const Tensor& weight = stored_.at(name + ".weight");
      if (tensors.empty() || tensors.back() != &weight) {
        tensors.push_back(&weight);
        count(weight);
      }
      parts.emplace_back(rows_of(bytes_of(weight), weight.format, in_features(weight), rows),
                         weight.format, rows.count);
      if (const Tensor* const added = stored_.find(name + ".bias")) {
        const std::vector<float> values = vector(*added);
        const auto first = values.begin() + rows.begin;
        bias.insert(bias.end(), first, first + rows.count);
      }
    }
    return pack(tensors, parts, in_features(*tensors.front()), bias, max_rows);
  }

  /// A product of which each rank has some inputs. The first rank adds the bias.
  std::unique_ptr<LinearWeights> linear_of_inputs(const std::string& name, const Slice& columns) {
    const Tensor& weight = stored_.at(name + ".weight");
    count(weight);
    const LinearPart part(columns_of(bytes_of(weight), weight.format, in_features(weight), columns),
                          weight.format, static_cast<std::int64_t>(weight.stored->shape[0]));
    std::vector<float> bias;
    const Tensor* const added = stored_.find(name + ".bias");
    if (added != nullptr && options_.shard.rank == 0) bias = vector(*added);
    return pack({&weight}, std::span(&part, 1), columns.count, bias, options_.max_rows);
  }

  static std::int64_t in_features(const Tensor& weight) {
    return static_cast<std::int64_t>(weight.stored->shape[1]);
  }

  std::unique_ptr<LinearWeights> pack(const std::vector<const Tensor*>& tensors,
                                      std::span<const LinearPart> parts, std::int64_t in,
                                      std::span<const float> bias, std::int32_t max_rows) {
    auto packed = device_.pack_linear(parts, in, bias, max_rows);
    if (options_.check_finite && packed->has_non_finite()) {
      for (const Tensor* const tensor : tensors) read_through(*tensor);
      const Tensor& first = *tensors.front();
      throw_failure(cat(stored_.source().file_name(first.name), ": tensor ", first.name,
                        " or one stacked on it holds values beyond the "
                        "range of ",
                        name_of(device_.compute_dtype())));
    }
    weights_.bytes_read += packed->bytes();
    report();
    return packed;
  }

  /// Rows of q, k and v. Where they lie in one tensor, they follow each other there.
  std::vector<Outputs> qkv_outputs(const std::string& attention) const {
    const std::int64_t head = config_.head_dim;
    const auto of = [&](const Slice& heads) -> Slice {
      return {heads.begin * head, heads.count * head};
    };
    const Slice q = of(slice_.heads), kv = of(slice_.kv_heads);
    if (!config_.fused_projections) {
      return {{attention + "q_proj", q}, {attention + "k_proj", kv}, {attention + "v_proj", kv}};
    }
    const std::int64_t q_rows = config_.heads * head, kv_rows = config_.kv_heads * head;
    return fused(attention + "qkv_proj",
                 {q, {q_rows + kv.begin, kv.count}, {q_rows + kv_rows + kv.begin, kv.count}});
  }
  std::vector<Outputs> gate_up_outputs(const std::string& mlp) const {
    const Slice& ffn = slice_.ffn;
    if (!config_.fused_projections) return {{mlp + "gate_proj", ffn}, {mlp + "up_proj", ffn}};
    return fused(mlp + "gate_up_proj", {ffn, {config_.intermediate_size + ffn.begin, ffn.count}});
  }
  /// Slices of one tensor, as one part where they are neighbours.
  static std::vector<Outputs> fused(const std::string& name, const std::vector<Slice>& slices) {
    std::vector<Outputs> outputs;
    for (const Slice& slice : slices) {
      if (!outputs.empty() && outputs.back().rows.end() == slice.begin) {
        outputs.back().rows.count += slice.count;
      } else {
        outputs.push_back({name, slice});
      }
    }
    return outputs;
  }

  void load_layer(std::int32_t index) {
    const std::string prefix = cat("model.layers.", index, ".");
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const std::int32_t rows = options_.max_rows;
    const LayerSpec& spec = config_.layer_specs[static_cast<std::size_t>(index)];
    LayerWeights layer;
    layer.attention_norm = norm(prefix + "input_layernorm");
    if (spec.head_norms) {
      layer.query_norm = norm(attention + "q_norm");
      layer.key_norm = norm(attention + "k_norm");
    }
    // Where there are four norms, the name of Llama's second is that of another.
    if (spec.output_norms) layer.attended_norm = norm(prefix + "post_attention_layernorm");
    layer.ffn_norm = norm(
        prefix + (spec.output_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
    if (spec.output_norms) layer.fed_norm = norm(prefix + "post_feedforward_layernorm");
    layer.qkv = linear(qkv_outputs(attention), rows);
    layer.gate_up = linear(gate_up_outputs(mlp), rows);
    layer.output = linear_of_inputs(attention + "o_proj", {slice_.heads.begin * config_.head_dim,
                                                           slice_.heads.count * config_.head_dim});
    layer.down = linear_of_inputs(mlp + "down_proj", slice_.ffn);
    weights_.layer_blocks.push_back(RingStream::block_bytes(layer.products()));
    if (is_streamed(index, config_.layers, options_.resident_layers)) {
      if (!weights_.stream) {
        weights_.stream = options_.stream_folder.empty()
                              ? device_.make_weight_stream(options_.stream_places)
                              : std::make_unique<cpu::FileWeightStream>(options_.stream_places,
                                                                        options_.stream_folder);
      }
      weights_.stream->add(layer.products());
      layer.visit = visits_++;
      weights_.streamed_bytes += weights_.layer_blocks.back();
    }
    weights_.layers.push_back(std::move(layer));
  }

  void load_embedding() {
    const Tensor& table = stored_.at("model.embed_tokens.weight");
    if (config_.scaled_embeddings) {
      // transformers rounds the factor to the type of the table; a quantised one was made of bf16.
      weights_.embedding_scale = rounded(std::sqrt(static_cast<double>(config_.hidden_size)),
                                         dtype_of(table.format).value_or(DType::bf16));
    }
    // Each rank embeds all tokens, but its head may be a slice.
    if (config_.tie_word_embeddings && options_.shard.whole()) {
      weights_.embedding = weights_.head->table();
      if (weights_.embedding.is_there()) return;
    }
    if (!config_.tie_word_embeddings) count(table);  // else it counted as the head
    const bool kept = device_.embeds(table.format);
    const WeightFormat format = kept ? table.format : WeightFormat::bf16;
    const std::uint64_t bytes = coppice::bytes_of(format, table.stored->elements());
    weights_.embedding_copy = device_.allocate(bytes, "embedding table");
    device_.upload(weights_.embedding_copy.data(),
                   kept ? checked(table) : narrowed_to_bf16(checked(table), table.format), bytes);
    weights_.embedding = {weights_.embedding_copy.data(), format};
  }

  const ModelConfig& config_;
  const StoredWeights& stored_;
  const ModelSlice& slice_;
  Device& device_;
  const ModelOptions& options_;
  const LoadProgress& progress_;
  const std::int64_t parameters_;
  std::size_t norms_placed_ = 0;
  std::int32_t visits_ = 0;
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_expected_;
  ModelWeights weights_;
};

std::int64_t packed_bytes(const StoredTensor& tensor, DType compute_dtype) {
  if (compute_dtype == DType::f32) return static_cast<std::int64_t>(tensor.bytes);
  return static_cast<std::int64_t>(tensor.elements() * size_of(compute_dtype));
}

}  // namespace

std::int64_t packed_bytes(const StoredWeights& stored, DType compute_dtype, int ranks) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : stored.all())
    bytes += packed_bytes(*tensor.stored, compute_dtype) / ranks;
  // Tied embeddings in 16 bits are kept twice: packed as the head, and as a table.
  const bool tied = stored.find("lm_head.weight") == nullptr;
  const StoredWeights::Tensor& table = stored.at("model.embed_tokens.weight");
  const bool shared = table.format == WeightFormat::f32 && compute_dtype == DType::f32;
  if (ranks > 1 || (tied && !shared && dtype_of(table.format))) {
    bytes += packed_bytes(*table.stored, compute_dtype);
  }
  return bytes;
}

std::vector<std::size_t> packed_layer_bytes(const StoredWeights& stored, DType compute_dtype,
                                            std::int32_t layers) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(layers));
  for (const auto& [name, tensor] : stored.all()) {
    const std::int32_t layer = layer_of(name);
    if (layer < 0) continue;
    bytes.at(static_cast<std::size_t>(layer)) +=
        static_cast<std::size_t>(packed_bytes(*tensor.stored, compute_dtype));
  }
  return bytes;
}

ModelWeights load_weights(const ModelConfig& config, const StoredWeights& stored,
                          const ModelSlice& slice, Device& device, const ModelOptions& options,
                          const LoadProgress& progress) {
  return Loader(config, stored, slice, device, options, progress).load();
}

}  // namespace coppice
