#include "reference/tiny_model.h"

#include <stdlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numbers>
#include <sstream>
#include <stdexcept>

namespace coppice::testing {
namespace {

std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Standard normal number `index` of the tensor `name` under `seed` (Box and Muller).
double normal(std::uint64_t seed, const std::string& name, std::uint64_t index) {
  std::uint64_t key = mixed(seed);
  for (const char c : name) key = mixed(key ^ static_cast<unsigned char>(c));
  const auto unit = [&](std::uint64_t i) {
    return (static_cast<double>(mixed(key ^ mixed(i)) >> 12) + 0.5) * 0x1.0p-52;
  };
  return std::sqrt(-2.0 * std::log(unit(2 * index))) *
         std::cos(2.0 * std::numbers::pi * unit(2 * index + 1));
}

std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Finite values within the range of f16.
std::uint16_t f16_bits(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0.0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  // Fraction in units of the last place, ties to even.
  const auto units =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A subnormal has units below 1024 and exponent field 0; a carry moves into the field.
  return static_cast<std::uint16_t>(sign +
                                    ((static_cast<std::uint32_t>(exponent + 14) << 10) + units));
}

float f16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000u) != 0 ? -magnitude : magnitude);
}

void append(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

struct Maker {
  const TinyModel& model;
  std::vector<TensorToWrite> tensors;

  void add(const std::string& name, std::vector<std::uint64_t> shape, double mean,
           double deviation) {
    TensorToWrite tensor;
    tensor.name = name;
    tensor.dtype = model.dtype == DType::f32 ? "F32" : model.dtype == DType::f16 ? "F16" : "BF16";
    tensor.shape = std::move(shape);
    std::uint64_t count = 1;
    for (const std::uint64_t extent : tensor.shape) count *= extent;
    const double kept = std::sqrt(1.0 - model.noise * model.noise);
    for (std::uint64_t i = 0; i < count; ++i) {
      double deviate = normal(model.seed, name, i);
      if (model.noise != 0.0) {
        deviate = kept * deviate + model.noise * normal(model.noise_seed, name, i);
      }
      const auto value = static_cast<float>(mean + deviation * deviate);
      if (model.dtype == DType::f32) {
        append(tensor.bytes, &value, 4);
      } else {
        const std::uint16_t bits = model.dtype == DType::bf16 ? bf16_bits(value) : f16_bits(value);
        append(tensor.bytes, &bits, 2);
      }
    }
    tensors.push_back(std::move(tensor));
  }
};

}  // namespace

float rounded_to(float value, DType dtype) {
  if (dtype == DType::bf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bf16_bits(value)) << 16);
  }
  return dtype == DType::f16 ? f16_value(f16_bits(value)) : value;
}

std::vector<TensorToWrite> tiny_model_tensors(const TinyModel& model) {
  Maker make{model, {}};
  const auto u = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t hidden = u(model.hidden_size), ffn = u(model.intermediate_size);
  const std::uint64_t q = u(model.heads) * u(model.head_dim);
  const std::uint64_t kv = u(model.kv_heads) * u(model.head_dim);
  const bool qwen2 = model.architecture == "Qwen2ForCausalLM";
  // Products keep unit variance; a normed state times rows of deviation 1/sqrt(hidden) does too.
  const double narrow = 1.0 / std::sqrt(static_cast<double>(hidden));
  make.add("model.embed_tokens.weight", {u(model.vocab_size), hidden}, 0.0,
           model.tie_word_embeddings ? narrow : 1.0);
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto linear = [&](const std::string& name, std::uint64_t out, std::uint64_t in,
                            bool bias) {
      make.add(prefix + name + ".weight", {out, in}, 0.0, 1.0 / std::sqrt(static_cast<double>(in)));
      if (bias) make.add(prefix + name + ".bias", {out}, 0.0, 0.25);
    };
    const bool qkv_bias = qwen2 || model.attention_bias;
    make.add(prefix + "input_layernorm.weight", {hidden}, 1.0, 0.1);
    linear("self_attn.q_proj", q, hidden, qkv_bias);
    linear("self_attn.k_proj", kv, hidden, qkv_bias);
    linear("self_attn.v_proj", kv, hidden, qkv_bias);
    linear("self_attn.o_proj", hidden, q, model.attention_bias && !qwen2);
    make.add(prefix + "post_attention_layernorm.weight", {hidden}, 1.0, 0.1);
    linear("mlp.gate_proj", ffn, hidden, model.mlp_bias);
    linear("mlp.up_proj", ffn, hidden, model.mlp_bias);
    linear("mlp.down_proj", hidden, ffn, model.mlp_bias);
  }
  make.add("model.norm.weight", {hidden}, model.logit_scale, 0.1 * model.logit_scale);
  if (!model.tie_word_embeddings) {
    make.add("lm_head.weight", {u(model.vocab_size), hidden}, 0.0, narrow);
  }
  return std::move(make.tensors);
}

std::string tiny_model_config(const TinyModel& model) {
  std::ostringstream out;
  out.precision(17);
  const bool qwen2 = model.architecture == "Qwen2ForCausalLM";
  const bool mistral = model.architecture == "MistralForCausalLM";
  out << "{\"architectures\": [\"" << model.architecture << "\"],\n \"model_type\": \""
      << (qwen2     ? "qwen2"
          : mistral ? "mistral"
                    : "llama")
      << "\",\n \"vocab_size\": " << model.vocab_size << ", \"hidden_size\": " << model.hidden_size
      << ", \"intermediate_size\": " << model.intermediate_size
      << ",\n \"num_hidden_layers\": " << model.layers
      << ", \"num_attention_heads\": " << model.heads
      << ", \"num_key_value_heads\": " << model.kv_heads << ", \"head_dim\": " << model.head_dim
      << ",\n \"max_position_embeddings\": " << model.context_length
      << ", \"rms_norm_eps\": " << model.rms_norm_eps << ", \"rope_theta\": " << model.rope_theta
      << ",\n \"rope_scaling\": ";
  const RopeScaling& rope = model.rope_scaling;
  switch (rope.kind) {
    case RopeScaling::Kind::none:
      out << "null";
      break;
    case RopeScaling::Kind::linear:
      out << "{\"type\": \"linear\", \"factor\": " << rope.factor << "}";
      break;
    case RopeScaling::Kind::llama3:
      out << "{\"rope_type\": \"llama3\", \"factor\": " << rope.factor
          << ", \"low_freq_factor\": " << rope.low_freq_factor
          << ", \"high_freq_factor\": " << rope.high_freq_factor
          << ", \"original_max_position_embeddings\": " << rope.original_context << "}";
      break;
  }
  out << std::boolalpha
      << ",\n \"hidden_act\": \"silu\", \"tie_word_embeddings\": " << model.tie_word_embeddings
      << ", \"attention_bias\": " << model.attention_bias << ", \"mlp_bias\": " << model.mlp_bias
      << ",\n \"bos_token_id\": ";
  if (model.bos_token < 0) {
    out << "null";
  } else {
    out << model.bos_token;
  }
  out << ", \"eos_token_id\": [";
  for (std::size_t i = 0; i < model.eos_tokens.size(); ++i) {
    out << (i == 0 ? "" : ", ") << model.eos_tokens[i];
  }
  out << "]}\n";
  return out.str();
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string out;
  const std::uint64_t length = header.size();
  for (int i = 0; i < 8; ++i) out += static_cast<char>((length >> (8 * i)) & 0xff);
  return out + header + data;
}

std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors, int header_padding) {
  std::ostringstream text;
  text << "{";
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    text << (data.empty() ? "" : ",") << '"' << tensor.name << "\":{\"dtype\":\"" << tensor.dtype
         << "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      text << (i == 0 ? "" : ",") << tensor.shape[i];
    }
    text << "],\"data_offsets\":[" << data.size() << "," << data.size() + tensor.bytes.size()
         << "]}";
    data += tensor.bytes;
  }
  text << "}";
  std::string header = text.str();
  header.append((8 - header.size() % 8) % 8 + static_cast<std::size_t>(header_padding), ' ');
  return safetensors_bytes(header, data);
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

void write_tiny_model(const std::filesystem::path& dir, const TinyModel& model) {
  std::filesystem::create_directories(dir);
  write_file(dir / "config.json", tiny_model_config(model));
  const std::vector<TensorToWrite> tensors = tiny_model_tensors(model);
  if (model.shards <= 1) {
    write_file(dir / "model.safetensors", safetensors_bytes(tensors, model.header_padding));
    return;
  }
  std::vector<std::vector<TensorToWrite>> parts(static_cast<std::size_t>(model.shards));
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t part = i * parts.size() / tensors.size();
    parts[part].push_back(tensors[i]);
    std::ostringstream entry;
    entry << (map.empty() ? "" : ",\n") << '"' << tensors[i].name << "\": \"part-" << part
          << ".safetensors\"";
    map += entry.str();
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    write_file(dir / ("part-" + std::to_string(part) + ".safetensors"),
               safetensors_bytes(parts[part], model.header_padding));
  }
  write_file(dir / "model.safetensors.index.json",
             "{\"metadata\": {}, \"weight_map\": {" + map + "}}\n");
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "coppice-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace coppice::testing
