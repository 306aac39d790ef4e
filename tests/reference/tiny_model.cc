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
  const auto is = [&](const char* family) { return model.architecture.rfind(family, 0) == 0; };
  const bool gemma = is("Gemma"), phi = is("Phi3"), head_norms = is("Qwen3") || is("Gemma3");
  // Gemma keeps a norm's weight as its difference from one.
  const auto norm = [&](const std::string& name, std::uint64_t width, double scale = 1.0) {
    make.add(name + ".weight", {width}, gemma ? scale - 1.0 : scale, 0.1 * scale);
  };
  // Products keep unit variance; a normed state times rows of deviation 1/sqrt(hidden) does too.
  const double narrow = 1.0 / std::sqrt(static_cast<double>(hidden));
  make.add("model.embed_tokens.weight", {u(model.vocab_size), hidden}, 0.0,
           model.tie_word_embeddings || gemma ? narrow : 1.0);
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto linear = [&](const std::string& name, std::uint64_t out, std::uint64_t in,
                            bool bias) {
      make.add(prefix + name + ".weight", {out, in}, 0.0, 1.0 / std::sqrt(static_cast<double>(in)));
      if (bias) make.add(prefix + name + ".bias", {out}, 0.0, 0.25);
    };
    const bool qkv_bias = is("Qwen2") || model.attention_bias;
    norm(prefix + "input_layernorm", hidden);
    if (phi) {
      linear("self_attn.qkv_proj", q + 2 * kv, hidden, false);
    } else {
      linear("self_attn.q_proj", q, hidden, qkv_bias);
      linear("self_attn.k_proj", kv, hidden, qkv_bias);
      linear("self_attn.v_proj", kv, hidden, qkv_bias);
    }
    if (head_norms) {
      norm(prefix + "self_attn.q_norm", u(model.head_dim), 1.5);
      norm(prefix + "self_attn.k_norm", u(model.head_dim), 1.5);
    }
    linear("self_attn.o_proj", hidden, q, model.attention_bias && !is("Qwen2"));
    norm(prefix + "post_attention_layernorm", hidden);
    if (gemma) norm(prefix + "pre_feedforward_layernorm", hidden);
    if (phi) {
      linear("mlp.gate_up_proj", 2 * ffn, hidden, false);
    } else {
      linear("mlp.gate_proj", ffn, hidden, model.mlp_bias);
      linear("mlp.up_proj", ffn, hidden, model.mlp_bias);
    }
    linear("mlp.down_proj", hidden, ffn, model.mlp_bias);
    if (gemma) norm(prefix + "post_feedforward_layernorm", hidden);
  }
  norm("model.norm", hidden, model.logit_scale);
  if (!model.tie_word_embeddings) {
    make.add("lm_head.weight", {u(model.vocab_size), hidden}, 0.0, narrow);
  }
  return std::move(make.tensors);
}

std::map<std::string, TinyModel> tiny_families() {
  std::map<std::string, TinyModel> all;
  const auto add = [&](const char* name, const char* architecture, const char* fields,
                       const char* rope_scaling = "null") {
    TinyModel& model = all[name];
    model.architecture = architecture;
    model.fields = fields;
    model.rope_scaling = rope_scaling;
    model.layers = 3;
  };
  add("mistral_window", "MistralForCausalLM", R"("sliding_window": 4)");
  add("qwen2_windows", "Qwen2ForCausalLM",
      R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 1)");
  add("qwen3_yarn", "Qwen3ForCausalLM", "",
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})");
  add("gemma2", "Gemma2ForCausalLM",
      R"("sliding_window": 4, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0)");
  add("gemma3", "Gemma3ForCausalLM",
      R"("sliding_window": 3, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8,
         "rope_local_base_freq": 100.0)",
      R"({"rope_type": "linear", "factor": 8.0})");
  add("phi3_longrope", "Phi3ForCausalLM",
      R"("partial_rotary_factor": 0.5, "original_max_position_embeddings": 32,
         "sliding_window": 5)",
      R"({"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6],
          "long_factor": [1.0, 2.0, 5.0, 11.0]})");
  add("smollm3", "SmolLM3ForCausalLM", R"("no_rope_layers": [1, 0, 1])");
  return all;
}

std::string tiny_model_config(const TinyModel& model) {
  std::ostringstream out;
  out.precision(17);
  out << "{\"architectures\": [\"" << model.architecture
      << "\"],\n \"vocab_size\": " << model.vocab_size << ", \"hidden_size\": " << model.hidden_size
      << ", \"intermediate_size\": " << model.intermediate_size
      << ",\n \"num_hidden_layers\": " << model.layers
      << ", \"num_attention_heads\": " << model.heads
      << ", \"num_key_value_heads\": " << model.kv_heads << ", \"head_dim\": " << model.head_dim
      << ",\n \"max_position_embeddings\": " << model.context_length
      << ", \"rms_norm_eps\": " << model.rms_norm_eps << ", \"rope_theta\": " << model.rope_theta
      << ",\n \"rope_scaling\": " << model.rope_scaling << std::boolalpha
      << ",\n \"hidden_act\": \"silu\", \"tie_word_embeddings\": " << model.tie_word_embeddings
      << ", \"attention_bias\": " << model.attention_bias << ", \"mlp_bias\": " << model.mlp_bias
      << ",\n " << model.fields << (model.fields.empty() ? "" : ",\n ") << "\"bos_token_id\": ";
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
