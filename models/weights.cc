#include "models/weights.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernels/finite.h"

namespace coppice {
namespace {

std::optional<DType> float_type(const std::string& dtype) {
  if (dtype == "F32") return DType::f32;
  if (dtype == "F16") return DType::f16;
  if (dtype == "BF16") return DType::bf16;
  return std::nullopt;
}

float widened_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  // Exponent and fraction in place, then the bias corrected by an exact product, which also
  // makes subnormal halves normal.
  return std::bit_cast<float>(
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1.0p112f) | sign);
}

void widen(std::span<const std::byte> values, DType dtype, float* out) {
  const std::size_t count = values.size() / size_of(dtype);
  if (dtype == DType::f32) {
    std::memcpy(out, values.data(), values.size());
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, values.data() + 2 * i, 2);
    out[i] = dtype == DType::f16 ? widened_f16(bits)
                                 : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
}

/// Values round as the type does: nearest, ties to even.
float rounded(double value, DType dtype) {
  if (dtype == DType::f32) return static_cast<float>(value);
  const int bits = dtype == DType::f16 ? 11 : 8;  // of the fraction, the leading one included
  const int exponent = std::ilogb(value) + 1 - bits;
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent));
}

/// What stands before a text model's own names, and before lm_head.
struct Prefixes {
  std::string_view model, head;
};

/// Models that see images, too, keep the text model under a name of its own.
Prefixes prefixes_of(const Checkpoint& checkpoint) {
  constexpr Prefixes text = {"model.", ""};
  for (const Prefixes& found : {text, Prefixes{"language_model.model.", "language_model."},
                                Prefixes{"model.language_model.", ""}}) {
    if (checkpoint.find(cat(found.model, "embed_tokens.weight")) != nullptr) return found;
  }
  return text;
}

/// The name on disk of a tensor that parameter_shapes() calls `name`.
std::string stored_name(const Prefixes& prefixes, const std::string& name) {
  constexpr std::string_view model = "model.";
  if (name.rfind(model, 0) == 0) return cat(prefixes.model, name.substr(model.size()));
  return cat(prefixes.head, name);
}

/// Whether the layer that a name speaks of is one of the model's.
bool is_in_layers(std::string_view name, std::int32_t layers) {
  constexpr std::string_view begin = "layers.";
  if (name.substr(0, begin.size()) != begin) return true;
  name.remove_prefix(begin.size());
  std::int32_t index = -1;
  std::from_chars(name.data(), name.data() + name.size(), index);
  return index < layers;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

class Loader {
 public:
  Loader(const ModelConfig& config, const Checkpoint& checkpoint, Device& device,
         const ModelOptions& options, const LoadProgress& progress)
      : config_(config),
        checkpoint_(checkpoint),
        device_(device),
        options_(options),
        progress_(progress),
        prefixes_(prefixes_of(checkpoint)),
        hidden_(config.hidden_size),
        q_width_(std::int64_t{config.heads} * config.head_dim),
        kv_width_(std::int64_t{config.kv_heads} * config.head_dim),
        parameters_(parameter_count(config)),
        bytes_expected_(2 * parameters_) {}

  ModelWeights load() {
    report();
    require_known();
    std::size_t norms = 0;
    for (const ParameterShape& parameter : parameter_shapes(config_)) {
      if (!parameter.name.ends_with("norm.weight")) continue;
      norms += place_size(parameter.elements());
      weights_.bytes_read += static_cast<std::size_t>(parameter.elements()) * sizeof(float);
    }
    weights_.norms = device_.allocate(norms * sizeof(float), "norm weights");
    const bool tied = config_.tie_word_embeddings;
    weights_.head = linear({{tied ? "model.embed_tokens" : "lm_head", config_.vocab_size}}, hidden_,
                           false, options_.max_logit_rows);
    load_embedding();
    for (std::int32_t layer = 0; layer < config_.layers; ++layer) load_layer(layer);
    weights_.final_norm = norm("model.norm", hidden_);
    checkpoint_.require_unchanged();  // else the weights may be of two versions
    if (progress_) progress_(1.0);
    return std::move(weights_);
  }

 private:
  struct Part {
    std::string name;  ///< without .weight or .bias
    std::int64_t out_features;
  };
  struct Found {
    std::string name;  ///< on disk
    const SafetensorsFile* file;
    const StoredTensor* tensor;
    DType dtype;

    HostBytes bytes() const {
      return HostBytes::Read(
          [file = file, tensor = tensor](std::size_t offset, std::span<std::byte> to) {
            file->read(*tensor, offset, to);
          });
    }
  };

  /// Norms begin at multiples of 256 bytes.
  static std::size_t place_size(std::int64_t values) {
    return (static_cast<std::size_t>(values) + 63) / 64 * 64;
  }

  /// Tensors that the graph would not look at make another model than config.json describes. Layers
  /// beyond the last one may be there: cut off by config.json, or made for other purposes.
  void require_known() const {
    std::set<std::string> known;
    for (const ParameterShape& parameter : parameter_shapes(config_)) {
      known.insert(stored_name(prefixes_, parameter.name));
    }
    for (const auto& [name, file] : checkpoint_.names()) {
      const std::string_view text = name;
      if (text.substr(0, prefixes_.model.size()) != prefixes_.model || known.count(name) != 0) {
        continue;
      }
      if (text.ends_with(".rotary_emb.inv_freq")) continue;  // computed from config.json
      if (!is_in_layers(text.substr(prefixes_.model.size()), config_.layers)) continue;
      throw_failure(cat(checkpoint_.files()[file].name(), ": tensor ", name, " is no part of the ",
                        config_.architecture,
                        " that config.json describes; the two files do not belong together"));
    }
  }

  Found find(const std::string& own_name, std::initializer_list<std::int64_t> shape) const {
    const std::string name = stored_name(prefixes_, own_name);
    const StoredTensor* tensor = checkpoint_.find(name);
    if (tensor == nullptr) {
      throw_failure(cat(checkpoint_.files().front().name(),
                        checkpoint_.files().size() > 1 ? " and its sister files" : "", ": tensor ",
                        name, " is missing; fetch the model again"));
    }
    const std::vector<std::uint64_t> wanted(shape.begin(), shape.end());
    if (tensor->shape != wanted) {
      throw_failure(cat(checkpoint_.file_of(name).name(), ": tensor ", name, " has the shape ",
                        shape_text(tensor->shape), ", but config.json asks for ",
                        shape_text(wanted), "; the two files do not belong together"));
    }
    const auto dtype = float_type(tensor->dtype);
    if (!dtype) {
      throw_failure(cat(checkpoint_.file_of(name).name(), ": tensor ", name, " has the dtype ",
                        tensor->dtype, ", but coppice reads F32, F16 and BF16; convert it"));
    }
    return {name, &checkpoint_.file_of(name), tensor, *dtype};
  }

  [[noreturn]] static void refuse_non_finite(const Found& found) {
    throw_failure(cat(found.file->name(), ": tensor ", found.name,
                      " holds NaN or infinity; fetch the file again"));
  }

  /// The same bytes; reading them throws when one of their values is not finite. Blocks that are
  /// asked for hold whole values.
  HostBytes checked(const Found& found) const {
    return HostBytes::Read([this, found](std::size_t offset, std::span<std::byte> to) {
      found.file->read(*found.tensor, offset, to);
      if (options_.check_finite && has_non_finite(to, found.dtype)) refuse_non_finite(found);
    });
  }

  static void read_through(const HostBytes& bytes, const Found& found) {
    constexpr std::uint64_t block = 1 << 20;
    std::vector<std::byte> some(block);
    for (std::uint64_t begin = 0; begin < found.tensor->bytes; begin += block) {
      const std::uint64_t count = std::min(block, found.tensor->bytes - begin);
      bytes.read(begin, std::span(some).first(count));
    }
  }

  void count(const Found& found) {
    bytes_done_ += static_cast<std::int64_t>(found.tensor->bytes);
    bytes_expected_ =
        std::max(bytes_expected_, parameters_ * static_cast<std::int64_t>(size_of(found.dtype)));
  }

  void report() const {
    if (progress_) {
      progress_(
          std::min(1.0, static_cast<double>(bytes_done_) / static_cast<double>(bytes_expected_)));
    }
  }

  std::vector<float> vector(const std::string& name, std::int64_t length) {
    const Found found = find(name, {length});
    count(found);
    std::vector<std::byte> bytes(static_cast<std::size_t>(found.tensor->bytes));
    checked(found).read(0, bytes);
    std::vector<float> values(static_cast<std::size_t>(length));
    widen(bytes, found.dtype, values.data());
    return values;
  }

  const float* norm(const std::string& name, std::int64_t width) {
    std::vector<float> values = vector(name + ".weight", width);
    if (config_.one_based_norms) {
      for (float& value : values) value += 1.0f;
    }
    float* place = weights_.norms.as<float>() + norms_placed_;
    norms_placed_ += place_size(width);
    device_.upload(place, values.data(), values.size() * sizeof(float));
    return place;
  }

  std::unique_ptr<LinearWeights> linear(std::initializer_list<Part> parts, std::int64_t in_features,
                                        bool with_bias, std::int32_t max_rows) {
    std::vector<LinearPart> stacked;
    std::vector<Found> sources;
    std::vector<float> bias;
    for (const Part& part : parts) {
      const Found found = find(part.name + ".weight", {part.out_features, in_features});
      count(found);
      sources.push_back(found);
      stacked.push_back({found.bytes(), found.dtype, part.out_features});
      if (with_bias) {
        const std::vector<float> values = vector(part.name + ".bias", part.out_features);
        bias.insert(bias.end(), values.begin(), values.end());
      }
    }
    auto packed = device_.pack_linear(stacked, in_features, bias, max_rows);
    if (options_.check_finite && packed->has_non_finite()) {
      for (const Found& found : sources) read_through(checked(found), found);
      throw_failure(cat(sources.front().file->name(), ": tensor ", sources.front().name,
                        " or one stacked on it holds values beyond the "
                        "range of ",
                        name_of(device_.compute_dtype())));
    }
    weights_.bytes_read += packed->bytes();
    report();
    return packed;
  }

  void load_layer(std::int32_t index) {
    const std::string prefix = cat("model.layers.", index, ".");
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const std::int32_t rows = options_.max_rows;
    const LayerSpec& spec = config_.layer_specs[static_cast<std::size_t>(index)];
    const std::int64_t ffn = config_.intermediate_size;
    LayerWeights layer;
    layer.attention_norm = norm(prefix + "input_layernorm", hidden_);
    if (spec.head_norms) {
      layer.query_norm = norm(attention + "q_norm", config_.head_dim);
      layer.key_norm = norm(attention + "k_norm", config_.head_dim);
    }
    // Where there are four norms, the name of Llama's second is that of another.
    if (spec.output_norms) layer.attended_norm = norm(prefix + "post_attention_layernorm", hidden_);
    layer.ffn_norm = norm(
        prefix + (spec.output_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
        hidden_);
    if (spec.output_norms) layer.fed_norm = norm(prefix + "post_feedforward_layernorm", hidden_);
    if (config_.fused_projections) {
      layer.qkv = linear({{attention + "qkv_proj", q_width_ + 2 * kv_width_}}, hidden_,
                         config_.qkv_bias, rows);
      layer.gate_up = linear({{mlp + "gate_up_proj", 2 * ffn}}, hidden_, config_.mlp_bias, rows);
    } else {
      layer.qkv = linear({{attention + "q_proj", q_width_},
                          {attention + "k_proj", kv_width_},
                          {attention + "v_proj", kv_width_}},
                         hidden_, config_.qkv_bias, rows);
      layer.gate_up = linear({{mlp + "gate_proj", ffn}, {mlp + "up_proj", ffn}}, hidden_,
                             config_.mlp_bias, rows);
    }
    layer.output = linear({{attention + "o_proj", hidden_}}, q_width_, config_.output_bias, rows);
    layer.down = linear({{mlp + "down_proj", hidden_}}, ffn, config_.mlp_bias, rows);
    weights_.layers.push_back(std::move(layer));
  }

  void load_embedding() {
    const std::string name = "model.embed_tokens.weight";
    const Found found = find(name, {config_.vocab_size, hidden_});
    if (config_.scaled_embeddings) {
      // transformers rounds the factor to the type of the table.
      weights_.embedding_scale = rounded(std::sqrt(static_cast<double>(hidden_)), found.dtype);
    }
    if (config_.tie_word_embeddings) {
      weights_.embedding = weights_.head->table(weights_.embedding_dtype);
      if (weights_.embedding != nullptr) return;
    }
    if (!config_.tie_word_embeddings) count(found);  // else it counted as the head
    const auto bytes = static_cast<std::size_t>(found.tensor->bytes);
    weights_.embedding_dtype = found.dtype;
    weights_.embedding_copy = device_.allocate(bytes, "embedding table");
    device_.upload(weights_.embedding_copy.data(), checked(found), bytes);
    weights_.embedding = weights_.embedding_copy.data();
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Device& device_;
  const ModelOptions& options_;
  const LoadProgress& progress_;
  const Prefixes prefixes_;
  const std::int64_t hidden_, q_width_, kv_width_, parameters_;
  std::size_t norms_placed_ = 0;
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_expected_;
  ModelWeights weights_;
};

}  // namespace

std::int64_t packed_bytes(const ModelConfig& config, const Checkpoint& checkpoint,
                          DType compute_dtype) {
  const auto bytes_of = [&](const StoredTensor& tensor) {
    if (compute_dtype == DType::f32) return static_cast<std::int64_t>(tensor.bytes);
    return static_cast<std::int64_t>(tensor.elements() * size_of(compute_dtype));
  };
  const Prefixes prefixes = prefixes_of(checkpoint);
  std::int64_t bytes = 0;
  for (const ParameterShape& parameter : parameter_shapes(config)) {
    const StoredTensor* tensor = checkpoint.find(stored_name(prefixes, parameter.name));
    if (tensor != nullptr) bytes += bytes_of(*tensor);
  }
  // Tied embeddings are kept twice: packed as the head, and as a table.
  const StoredTensor* table = checkpoint.find(stored_name(prefixes, "model.embed_tokens.weight"));
  if (config.tie_word_embeddings && table != nullptr) bytes += bytes_of(*table);
  return bytes;
}

ModelWeights load_weights(const ModelConfig& config, const Checkpoint& checkpoint, Device& device,
                          const ModelOptions& options, const LoadProgress& progress) {
  return Loader(config, checkpoint, device, options, progress).load();
}

}  // namespace coppice
