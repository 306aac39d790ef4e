// example TARGET DRAFT PROMPT: writes 32 tokens with the help of a draft model.
#include <coppice.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::cerr << "usage: example TARGET DRAFT PROMPT\n";
    return 2;
  }
  coppice::EngineOptions options;
  options.target = argv[1];
  options.draft = argv[2];
  auto engine = coppice::Engine::load(options);
  coppice::GenerateOptions request;
  request.max_new_tokens = 32;
  const auto result = engine.generate(argv[3], request, [](const coppice::Piece& piece) {
    std::cout << piece.text << std::flush;
    return true;
  });
  std::cout << "\n" << result.statistics.accepted_length << " tokens per target pass\n";
  return 0;
} catch (const coppice::Error& error) {
  std::cerr << "example: " << error.what() << "\n";
  return 1;
}
