// Writes a Hugging Face folder of a known shape with random bf16 weights: what a step costs does
// not depend on what the weights say. No tokenizer; prompts are token ids. Fewer layers than the
// shape has take as much less time to write and to run.
//
//   build/bench/random_model llama-2-7b DIR [LAYERS]
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "hf_folder.h"

namespace {

using namespace coppice::bench;

void write_config(const std::filesystem::path& file, const LlamaShape& s) {
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
  const std::string usage =
      "usage: random_model SHAPE DIR [LAYERS], SHAPE one of " + known_shape_names();
  if (argc == 2 && (argv[1] == std::string("--help") || argv[1] == std::string("-h"))) {
    std::cout << usage << "\n";
    return 0;
  }
  const int layers = argc == 4 ? std::atoi(argv[3]) : 0;
  if (argc < 3 || argc > 4 || (argc == 4 && layers < 1) || known_shapes().count(argv[1]) == 0) {
    std::cerr << usage << "\n";
    return 2;
  }
  const std::filesystem::path dir = argv[2];
  LlamaShape shape = known_shapes().at(argv[1]);
  if (layers > 0) shape.layers = layers;
  std::filesystem::create_directories(dir);
  write_config(dir / "config.json", shape);
  const std::vector<Tensor> tensors = llama_tensors(shape);
  write_tensor_file(dir / "model.safetensors", tensors, {},
                    [&](std::size_t index, std::uint64_t first, std::span<std::uint16_t> out) {
                      fill_random(tensors[index], first, 1.0f, out);
                    });
  return 0;
} catch (const std::exception& error) {
  std::cerr << "random_model: " << error.what() << "\n";
  return 1;
}
