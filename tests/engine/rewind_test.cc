// Sequences whose last tokens are taken back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/endless_pair.h"
#include "engine/sequence_impl.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

class Rewound : public ::testing::Test {
 protected:
  const TinyPair pair_{endless()};
  Engine engine_ = Engine::load(pair_.options());
};

TEST_F(Rewound, GoesOnAsIfTheRestHadNeverBeen) {
  const std::vector<TokenId> other = {5, 80, 2};
  for (const bool taken_back : {false, true}) {
    engine_.drop_cache();
    Sequence sequence = engine_.new_sequence();
    sequence.generate(prompt, greedy(10));
    const std::vector<TokenId> before = tokens_of(sequence);
    const auto length = static_cast<std::int32_t>(before.size());
    if (taken_back) {
      sequence.generate(other, greedy(20));
      sequence.rewind(length);
      EXPECT_EQ(tokens_of(sequence), before);
    }
    std::vector<TokenId> whole = before;
    const std::vector<TokenId> next = {9, 9, 70};
    whole.insert(whole.end(), next.begin(), next.end());
    GenerateOptions options = greedy(15);
    options.sampling.repetition_penalty = 1.3;  // which counts the tokens that are there
    const Generation g = sequence.generate(next, options);
    EXPECT_EQ(g.statistics.prompt_tokens, static_cast<std::int32_t>(whole.size()));
    // The last token's KV is there if others came behind it.
    EXPECT_EQ(g.statistics.cached_tokens, taken_back ? length : length - 1);
    EXPECT_EQ(g.tokens.size(), 15u);
    engine_.drop_cache();
    const Generation alone = engine_.generate(whole, options);
    EXPECT_EQ(alone.statistics.cached_tokens, 0);
    if (!on_cuda()) {
      EXPECT_EQ(g.tokens, alone.tokens);
    }
  }
  expect_nothing_leaked(engine_);
}

// The same seed and stream, but not the same text once more.
TEST_F(Rewound, DrawsAnew) {
  for (const Acceptance acceptance : {Acceptance::coupled, Acceptance::rejection}) {
    GenerateOptions options = greedy(30);
    options.sampling.temperature = 1.5;
    options.acceptance = acceptance;
    Sequence sequence = engine_.new_sequence();
    const std::vector<TokenId> first = sequence.generate(prompt, options).tokens;
    sequence.rewind(0);
    EXPECT_TRUE(sequence.tokens().empty());
    EXPECT_NE(sequence.generate(prompt, options).tokens, first);
    EXPECT_EQ(engine_.generate(prompt, options).tokens, first) << "a new text repeats it";
  }
}

TEST_F(Rewound, ToItsLengthIsNothing) {
  GenerateOptions options = greedy(12);
  options.sampling.temperature = 1.0;
  options.acceptance = Acceptance::coupled;
  std::vector<std::vector<TokenId>> texts;
  for (const bool asked : {false, true}) {
    Sequence sequence = engine_.new_sequence();
    sequence.generate(prompt, options);
    if (asked) sequence.rewind(static_cast<std::int32_t>(sequence.tokens().size()));
    texts.push_back(sequence.generate(prompt, options).tokens);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(Rewound, RefusesOtherLengthsAndTextsUnderWay) {
  Sequence sequence = engine_.new_sequence();
  sequence.generate(prompt, greedy(4));
  EXPECT_NE(error_of([&] { sequence.rewind(-1); }, ErrorKind::usage).find("rewind -1: use 0 to 9"),
            std::string::npos);
  EXPECT_NE(error_of([&] { sequence.rewind(10); }, ErrorKind::usage).find("rewind 10: use 0 to 9"),
            std::string::npos);
  std::string said;
  sequence.generate(prompt, greedy(4), [&](const Piece&) {
    said = error_of([&] { sequence.rewind(0); }, ErrorKind::usage);
    return true;
  });
  EXPECT_NE(said.find("under way"), std::string::npos) << said;
  EXPECT_EQ(sequence.tokens().size(), 2 * prompt.size() + 8);
}

}  // namespace
}  // namespace coppice::testing
