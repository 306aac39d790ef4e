// Writes a Hugging Face folder of a known shape with random bf16 weights: what a step costs does
// not depend on what the weights say. No tokenizer; prompts are token ids.
//
//   build/bench/random_model llama-2-7b DIR
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace {

using namespace coppice;

struct Shape {
  std::int64_t vocab, hidden, ffn, layers, heads, kv_heads, context;
};

const std::map<std::string, Shape> shapes = {
    {"llama-68m", {32000, 768, 3072, 2, 12, 12, 2048}},
    {"tinyllama-1.1b", {32000, 2048, 5632, 22, 32, 4, 2048}},
    {"llama-2-7b", {32000, 4096, 11008, 32, 32, 32, 4096}},
    {"llama-3-8b", {128256, 4096, 14336, 32, 32, 8, 8192}},
    {"llama-2-13b", {32000, 5120, 13824, 40, 40, 40, 4096}},
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, values = 0;
  bool is_norm = false;
};

std::vector<Tensor> tensors_of(const Shape& s) {
  std::vector<Tensor> all;
  std::uint64_t end = 0;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> extents) {
    Tensor tensor{name, std::move(extents)};
    tensor.values = 1;
    for (const std::int64_t extent : tensor.shape) {
      tensor.values *= static_cast<std::uint64_t>(extent);
    }
    tensor.is_norm = tensor.shape.size() == 1;
    tensor.begin = end;
    end += 2 * tensor.values;
    all.push_back(std::move(tensor));
  };
  const std::int64_t head_dim = s.hidden / s.heads;
  add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string at = cat("model.layers.", layer, ".");
    add(at + "input_layernorm.weight", {s.hidden});
    add(at + "self_attn.q_proj.weight", {s.heads * head_dim, s.hidden});
    add(at + "self_attn.k_proj.weight", {s.kv_heads * head_dim, s.hidden});
    add(at + "self_attn.v_proj.weight", {s.kv_heads * head_dim, s.hidden});
    add(at + "self_attn.o_proj.weight", {s.hidden, s.heads * head_dim});
    add(at + "post_attention_layernorm.weight", {s.hidden});
    add(at + "mlp.gate_proj.weight", {s.ffn, s.hidden});
    add(at + "mlp.up_proj.weight", {s.ffn, s.hidden});
    add(at + "mlp.down_proj.weight", {s.hidden, s.ffn});
  }
  add("model.norm.weight", {s.hidden});
  add("lm_head.weight", {s.vocab, s.hidden});
  return all;
}

// Weights of a size that keeps activations near 1: uniform with deviation 1 / sqrt(in).
void fill(const Tensor& tensor, std::uint64_t first, std::vector<std::uint16_t>& out) {
  const double scale =
      std::sqrt(3.0) / std::sqrt(static_cast<double>(tensor.is_norm ? 1 : tensor.shape.back()));
  std::uint64_t state = (tensor.begin + first) * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
  for (std::uint16_t& value : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const float uniform = static_cast<float>(static_cast<std::int64_t>(state >> 40)) * 0x1p-23f;
    const float weight = tensor.is_norm ? 1.0f : (uniform - 1.0f) * static_cast<float>(scale);
    std::uint32_t bits;
    std::memcpy(&bits, &weight, sizeof(bits));
    value = static_cast<std::uint16_t>(bits >> 16);
  }
}

void write_weights(const std::filesystem::path& file, const std::vector<Tensor>& tensors) {
  nlohmann::ordered_json header;
  for (const Tensor& t : tensors) {
    header[t.name] = {
        {"dtype", "BF16"}, {"shape", t.shape}, {"data_offsets", {t.begin, t.begin + 2 * t.values}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 63) / 64 * 64, ' ');
  const std::uint64_t length = text.size();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof(length))
      .write(text.data(), static_cast<std::streamsize>(length));
  const std::uint64_t data = sizeof(length) + length;
  std::filesystem::resize_file(file, data + tensors.back().begin + 2 * tensors.back().values);

  const unsigned count = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  std::vector<char> failed(count, 0);
  for (unsigned thread = 0; thread < count; ++thread) {
    threads.emplace_back([&, thread] {
      std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
      constexpr std::uint64_t block = std::uint64_t{1} << 22;
      std::vector<std::uint16_t> values;
      std::uint64_t turn = 0;
      for (const Tensor& t : tensors) {
        for (std::uint64_t first = 0; first < t.values; first += block) {
          if (turn++ % count != thread) continue;
          values.resize(std::min(block, t.values - first));
          fill(t, first, values);
          out.seekp(static_cast<std::streamoff>(data + t.begin + 2 * first));
          out.write(reinterpret_cast<const char*>(values.data()),
                    static_cast<std::streamsize>(2 * values.size()));
        }
      }
      out.flush();
      failed[thread] = out.good() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char one : failed) {
    if (one != 0) throw_failure(cat(file.string(), ": could not be written; is the disk full?"));
  }
}

void write_config(const std::filesystem::path& file, const Shape& s) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", s.vocab},
                                 {"hidden_size", s.hidden},
                                 {"intermediate_size", s.ffn},
                                 {"num_hidden_layers", s.layers},
                                 {"num_attention_heads", s.heads},
                                 {"num_key_value_heads", s.kv_heads},
                                 {"max_position_embeddings", s.context},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},
                                 {"hidden_act", "silu"},
                                 {"tie_word_embeddings", false},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", 2},
                                 {"torch_dtype", "bfloat16"}};
  std::ofstream(file) << config.dump(2) << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3 || shapes.count(argv[1]) == 0) {
    std::cerr << "usage: random_model SHAPE DIR, SHAPE one of";
    for (const auto& [name, shape] : shapes) std::cerr << " " << name;
    std::cerr << "\n";
    return 2;
  }
  const std::filesystem::path dir = argv[2];
  std::filesystem::create_directories(dir);
  write_config(dir / "config.json", shapes.at(argv[1]));
  write_weights(dir / "model.safetensors", tensors_of(shapes.at(argv[1])));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "random_model: " << error.what() << "\n";
  return 1;
}
