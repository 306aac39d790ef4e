// Sequences whose last tokens are taken back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/endless_pair.h"
#include "engine/sequence_impl.h"

namespace coppice::testing {
namespace {

class Truncated : public ::testing::Test {
 protected:
  const TinyPair pair_{endless()};
  Engine engine_ = Engine::load(pair_.options());

  static std::vector<TokenId> tokens_of(const Sequence& sequence) {
    return {sequence.tokens().begin(), sequence.tokens().end()};
  }
  static std::int32_t kept_kv(const Sequence& sequence) {
    return SequenceAccess::impl(sequence)->state.target_slots.size();
  }
  template <typename Body>
  static std::string refusal(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  }
};

TEST_F(Truncated, GoesOnAsIfTheRestHadNeverBeen) {
  const std::vector<TokenId> other = {5, 80, 2};
  for (const bool taken_back : {false, true}) {
    Sequence sequence = engine_.new_sequence();
    sequence.generate(prompt, greedy(10));
    const std::vector<TokenId> before = tokens_of(sequence);
    const auto length = static_cast<std::int32_t>(before.size());
    if (taken_back) {
      sequence.generate(other, greedy(20));
      const std::int32_t kv = kept_kv(sequence);
      sequence.truncate(length);
      EXPECT_EQ(tokens_of(sequence), before);
      EXPECT_EQ(kept_kv(sequence), length - 1) << "of " << kv;
    }
    std::vector<TokenId> whole = before;
    const std::vector<TokenId> next = {9, 9, 70};
    whole.insert(whole.end(), next.begin(), next.end());
    GenerateOptions options = greedy(15);
    options.sampling.repetition_penalty = 1.3;  // which counts the tokens that are there
    const Generation g = sequence.generate(next, options);
    EXPECT_EQ(g.statistics.prompt_tokens, static_cast<std::int32_t>(whole.size()));
    EXPECT_EQ(g.statistics.cached_tokens, length - 1);
    EXPECT_EQ(g.tokens.size(), 15u);
    const Generation alone = engine_.generate(whole, options);
    EXPECT_EQ(alone.statistics.cached_tokens, 0);
    if (!on_cuda()) {
      EXPECT_EQ(g.tokens, alone.tokens);
    }
  }
  expect_nothing_leaked(engine_);
}

// The same seed and stream, but not the same text once more.
TEST_F(Truncated, DrawsAnew) {
  for (const Acceptance acceptance : {Acceptance::coupled, Acceptance::rejection}) {
    GenerateOptions options = greedy(30);
    options.sampling.temperature = 1.5;
    options.acceptance = acceptance;
    Sequence sequence = engine_.new_sequence();
    const std::vector<TokenId> first = sequence.generate(prompt, options).tokens;
    sequence.truncate(0);
    EXPECT_TRUE(sequence.tokens().empty());
    EXPECT_EQ(kept_kv(sequence), 0);
    EXPECT_NE(sequence.generate(prompt, options).tokens, first);
    EXPECT_EQ(engine_.generate(prompt, options).tokens, first) << "a new text repeats it";
  }
}

TEST_F(Truncated, ToItsLengthIsNothing) {
  GenerateOptions options = greedy(12);
  options.sampling.temperature = 1.0;
  options.acceptance = Acceptance::coupled;
  std::vector<std::vector<TokenId>> texts;
  for (const bool asked : {false, true}) {
    Sequence sequence = engine_.new_sequence();
    sequence.generate(prompt, options);
    if (asked) sequence.truncate(static_cast<std::int32_t>(sequence.tokens().size()));
    texts.push_back(sequence.generate(prompt, options).tokens);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(Truncated, RefusesOtherLengthsAndTextsUnderWay) {
  Sequence sequence = engine_.new_sequence();
  sequence.generate(prompt, greedy(4));
  EXPECT_NE(refusal([&] { sequence.truncate(-1); }).find("truncate -1: use 0 to 9"),
            std::string::npos);
  EXPECT_NE(refusal([&] { sequence.truncate(10); }).find("truncate 10: use 0 to 9"),
            std::string::npos);
  std::string said;
  sequence.generate(prompt, greedy(4), [&](const Piece&) {
    said = refusal([&] { sequence.truncate(0); });
    return true;
  });
  EXPECT_NE(said.find("under way"), std::string::npos) << said;
  EXPECT_EQ(sequence.tokens().size(), 2 * prompt.size() + 8);
}

}  // namespace
}  // namespace coppice::testing
