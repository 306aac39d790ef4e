// Writes a Hugging Face folder of a known shape with random bf16 weights: what a step costs does
// not depend on what the weights say. No tokenizer; prompts are token ids. Fewer layers than the
// shape has take as much less time to write and to run.
//
//   build/bench/random_model llama-2-7b DIR [LAYERS]
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "hf_folder.h"

using namespace coppice::bench;

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
  ModelShape shape = known_shapes().at(argv[1]);
  if (layers > 0) shape.layers = layers;
  std::filesystem::create_directories(dir);
  write_text_file(dir / "config.json", config_of(shape).dump(2) + "\n");
  const std::vector<Tensor> tensors = tensors_of(shape);
  write_tensor_file(dir / "model.safetensors", tensors, {},
                    [&](std::size_t index, std::uint64_t first, std::span<std::uint16_t> out) {
                      fill_random(tensors[index], first, 1.0f, out);
                    });
  return 0;
} catch (const std::exception& error) {
  std::cerr << "random_model: " << error.what() << "\n";
  return 1;
}
