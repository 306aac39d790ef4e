// The numbers of usual_acceptance, measured anew on a quarter of the shipped prompts. What an
// instruction set changes of them is far below what chance does.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "drafting/sequoia.h"
#include "engine/pair.h"
#include "engine/tree_plan.h"
#include "reference/quick.h"

namespace coppice::testing {
namespace {

// Each number within five standard deviations of a relative frequency at this many nodes.
TEST(UsualAcceptance, IsTheShippedPairs) {
  // As many nodes in a quick build, on texts of half the length.
  constexpr std::ptrdiff_t longest = quick ? 32 : 64;
  Engine engine = Engine::load(shipped_options());
  std::vector<RankPath> star(24);
  for (std::size_t i = 0; i < star.size(); ++i) star[i] = {static_cast<std::int32_t>(i)};
  GenerateOptions options;
  options.sampling.temperature = 0.8;
  options.ignore_eos = true;
  std::vector<std::int64_t> accepted(star.size(), 0);
  std::int64_t nodes = 0;
  const std::vector<std::string> all = prompts();
  for (std::size_t prompt = 0; prompt < all.size(); prompt += 4) {  // of every kind
    const std::vector<TokenId> beginning = engine.tokenize(all[prompt]);
    options.speculation = Plain{};
    options.max_new_tokens = longest;
    const std::vector<TokenId> written = engine.generate(beginning, options).tokens;
    options.speculation = StaticTree{star};
    options.max_new_tokens = 128;
    for (std::ptrdiff_t length = longest / 8; length <= longest; length += longest / 8) {
      std::vector<TokenId> tokens = beginning;
      tokens.insert(tokens.end(), written.begin(), written.begin() + length);
      ++options.seed;
      const JudgedTree tree = engine.judge_tree(tokens, options);
      ++nodes;
      for (const TreeNode& node : tree.nodes) {
        if (node.depth == 1 && node.accepted) ++accepted[static_cast<std::size_t>(node.rank)];
      }
    }
  }
  const std::vector<double> measured = estimate_acceptance(accepted, nodes);
  for (std::size_t rank = 0; rank < usual_acceptance.size(); ++rank) {
    const double usual = usual_acceptance[rank];
    const double deviation = std::sqrt(usual * (1.0 - usual) / static_cast<double>(nodes));
    std::cout << "rank " << rank << ": " << measured[rank] << " measured, " << usual << " used\n";
    EXPECT_NEAR(measured[rank], usual, 5.0 * deviation);
  }
}

}  // namespace
}  // namespace coppice::testing
