// The host's memory runs out at any allocation of a generation: one error, the sequence as it was,
// and no KV slot lost.
#include <gtest/gtest.h>

#include <optional>

#include "engine/failing_allocation.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

TEST(OutOfMemory, LosesNeitherSlotsNorTheSequence) {
  TinyModel shape;
  shape.eos_tokens = {};
  const TinyPair pair(shape, 0.2);
  EngineOptions loaded = pair.options();
  loaded.max_tree_size = 32;
  int failed = 0, succeeded = 0;
  for (const Speculation& speculation :
       std::vector<Speculation>{Plain{}, Dyspec{6}, Chain{6}, ExpandRerank{6}}) {
    std::optional<Engine> engine;
    for (long last = 0; last < 240; ++last) {
      // Scratch memory that is there already hides failures.
      if (last % 20 == 0) engine.emplace(Engine::load(loaded));
      GenerateOptions options;
      options.speculation = speculation;
      options.max_new_tokens = 8;
      options.sampling.temperature = 0.7;
      options.acceptance = Acceptance::coupled;
      options.logprobs = last % 2 == 1;
      std::vector<TokenId> prompt;
      for (long i = 0; i < 40; ++i) prompt.push_back(static_cast<TokenId>((i * 7 + last) % 96));
      Sequence sequence = engine->new_sequence();
      if (last % 3 == 0) sequence.generate(std::vector<TokenId>{1, 2}, options);
      const std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
      allocations_left = last;
      try {
        sequence.generate(prompt, options);
        allocations_left = -1;
        ++succeeded;
      } catch (const std::exception&) {
        allocations_left = -1;
        ++failed;
        ASSERT_TRUE(std::equal(before.begin(), before.end(), sequence.tokens().begin(),
                               sequence.tokens().end()))
            << name_of(speculation) << ", allocation " << last;
      }
      { const Sequence ends = std::move(sequence); }
      expect_nothing_leaked(*engine);
      ASSERT_FALSE(::testing::Test::HasFailure())
          << name_of(speculation) << ", allocation " << last;
    }
  }
  EXPECT_GT(failed, 150);
  EXPECT_GT(succeeded, 0);
}

}  // namespace
}  // namespace coppice::testing
