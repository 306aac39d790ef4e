// example TARGET DRAFT PROMPT: writes 32 tokens with the help of a draft model, whose guesses grow
// by a policy of this program's own.
#include <coppice.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <span>
#include <vector>

namespace {

/// One path, as long as the draft is sure of it.
class SureChain final : public coppice::CustomPolicy {
 public:
  std::vector<std::int32_t> grow(coppice::GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    const auto child = tree.draw(evaluated[0]);
    if (!child || tree.room() == 0) return {};
    const coppice::DraftNode tip = tree.node(*child);
    if (tip.depth == tree.max_depth() || tip.path_prob <= 0.3) return {};
    return {*child};
  }
};

}  // namespace

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
  request.speculation = coppice::Custom{[] { return std::make_unique<SureChain>(); }, "sure-chain"};
  const auto result = engine.generate(argv[3], request, [](const coppice::Piece& piece) {
    std::cout << piece.text << std::flush;
    return true;
  });
  std::cout << "\n"
            << result.statistics.accepted_length << " tokens per target pass by policy "
            << result.used.policy << "\n";
  return 0;
} catch (const coppice::Error& error) {
  std::cerr << "example: " << error.what() << "\n";
  return 1;
}
