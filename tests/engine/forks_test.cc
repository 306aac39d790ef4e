// Sequences that fork, prefixes that stay, and what they share.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "engine/sequence_impl.h"
#include "planted/planted.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

class Forks : public ::testing::Test {
 protected:
  static GenerateOptions sampled(Acceptance acceptance, std::uint64_t stream) {
    GenerateOptions options = greedy(20);
    options.sampling.temperature = 1.0;
    options.acceptance = acceptance;
    options.speculation = Dyspec{6, true};
    options.stream = stream;
    return options;
  }

  const TinyPair pair_{endless(512)};
  Engine engine_ = Engine::load(pair_.options());
  const std::vector<TokenId> long_prompt_ = random_tokens(100, 96, 3);
};

// Branches of a text, written side by side, are what each is alone with its stream.
TEST_F(Forks, GoOnAsTheOriginalWouldHave) {
  for (const Acceptance acceptance : {Acceptance::coupled, Acceptance::rejection}) {
    engine_.drop_cache();
    Sequence trunk = engine_.new_sequence();
    trunk.generate(long_prompt_, sampled(acceptance, 0));
    std::vector<Sequence> branches;
    std::vector<Request> requests;
    for (std::uint64_t stream = 1; stream < 5; ++stream) branches.push_back(trunk.fork());
    for (std::uint64_t stream = 1; stream < 5; ++stream) {
      requests.emplace_back();
      requests.back().sequence = &branches[stream - 1];
      requests.back().options = sampled(acceptance, stream);
    }
    const std::vector<Outcome> together = engine_.generate(requests);
    const CacheStatistics cache = engine_.cache();
    EXPECT_LE(cache.target_shared, 119 + 4 * 21) << "the trunk is there once";
    for (std::uint64_t stream = 1; stream < 5; ++stream) {
      EXPECT_EQ(only(together[stream - 1]).tokens.size(), 20u);
      EXPECT_EQ(only(together[stream - 1]).statistics.prompt_tokens, 120);
      EXPECT_EQ(only(together[stream - 1]).statistics.cached_tokens, 118);
      Engine other = Engine::load(pair_.options());
      Sequence alone = other.new_sequence();
      alone.generate(long_prompt_, sampled(acceptance, 0));
      const Generation g = alone.generate(std::vector<TokenId>{}, sampled(acceptance, stream));
      if (!on_cuda()) {
        expect_equal(only(together[stream - 1]), g);
      }
    }
    EXPECT_EQ(trunk.tokens().size(), 120u) << "the original stays";
  }
  expect_nothing_leaked(engine_);
}

TEST_F(Forks, OfOneStreamAreTwins) {
  Sequence first = engine_.new_sequence();
  first.generate(prompt, sampled(Acceptance::rejection, 3));
  Sequence twin = first.fork();
  const GenerateOptions options = sampled(Acceptance::rejection, 3);
  const std::vector<TokenId> next = {5, 6};
  const Generation a = first.generate(next, options), b = twin.generate(next, options);
  if (!on_cuda()) {
    EXPECT_EQ(a.tokens, b.tokens);
  }
  Sequence other = first.fork();
  EXPECT_NE(other.generate(next, sampled(Acceptance::rejection, 4)).tokens,
            first.generate(next, options).tokens);
}

TEST_F(Forks, AreRefusedOfATextUnderWay) {
  Sequence sequence = engine_.new_sequence();
  std::string said;
  sequence.generate(prompt, greedy(4), [&](const Piece&) {
    said = error_of([&] { static_cast<void>(sequence.fork()); }, ErrorKind::usage);
    return true;
  });
  EXPECT_NE(said.find("under way"), std::string::npos) << said;
}

TEST_F(Forks, AnEmptyPromptGoesOnWithTokensOnly) {
  Sequence sequence = engine_.new_sequence();
  const std::vector<TokenId> nothing;
  EXPECT_NE(error_of([&] { sequence.generate(nothing, greedy(2)); }, ErrorKind::usage)
                .find("holds no tokens"),
            std::string::npos);
  sequence.generate(prompt, greedy(3));
  EXPECT_EQ(sequence.generate(nothing, greedy(2)).tokens.size(), 2u);
  EXPECT_EQ(sequence.tokens().size(), prompt.size() + 5);
}

// A search over branches: dead ends are destroyed, and memory holds what is alive.
TEST_F(Forks, PrunedBranchesLeaveTheirMemory) {
  EngineOptions load = pair_.options();
  load.kv_tokens = 512;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  Sequence best = engine.new_sequence();
  best.generate(long_prompt_, sampled(Acceptance::coupled, 0));
  for (std::uint64_t round = 0; round < 8; ++round) {
    std::vector<Sequence> branches;
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) branches.push_back(best.fork());
    for (std::uint64_t i = 0; i < 6; ++i) {
      requests.emplace_back();
      requests.back().sequence = &branches[i];
      requests.back().options = sampled(Acceptance::coupled, 10 * round + i);
    }
    for (const Outcome& outcome : engine.generate(requests)) {
      EXPECT_EQ(only(outcome).finish_reason, FinishReason::length);
      EXPECT_EQ(only(outcome).statistics.preemptions, 0);
      EXPECT_GE(only(outcome).statistics.cached_tokens,
                static_cast<std::int32_t>(best.tokens().size()) - 2);
    }
    best = std::move(branches[round % 6]);
  }
  EXPECT_EQ(best.tokens().size(), 100u + 9 * 20);
  expect_nothing_leaked(engine);
}

TEST_F(Forks, APrefixStaysWhileItLives) {
  EngineOptions load = pair_.options();
  load.kv_tokens = 256;
  load.max_tree_size = 16;
  for (const bool prefix_cache : {true, false}) {
    load.prefix_cache = prefix_cache;
    Engine engine = Engine::load(load);
    std::optional<Prefix> prefix = engine.prefix(long_prompt_);
    EXPECT_EQ(std::vector<TokenId>(prefix->tokens().begin(), prefix->tokens().end()), long_prompt_);
    EXPECT_EQ(engine.cache().target_shared, 100);
    EXPECT_EQ(engine.cache().draft_shared, 100);
    EXPECT_EQ(engine.cache().evictable, 0);
    // What others write cannot push it out.
    for (TokenId text = 0; text < 4; ++text) {
      engine.generate(std::vector<TokenId>{text, 1, 2}, greedy(130));
    }
    engine.drop_cache();
    EXPECT_EQ(engine.cache().target_shared, 100);
    std::vector<std::vector<TokenId>> texts;
    Sequence one = prefix->begin();
    EXPECT_EQ(tokens_of(one), long_prompt_);
    const Generation g = one.generate(std::vector<TokenId>{4, 5}, greedy(10));
    EXPECT_EQ(g.statistics.cached_tokens, 100);
    EXPECT_EQ(g.statistics.cached_draft_tokens, 100);
    std::vector<TokenId> whole = long_prompt_;
    whole.push_back(4);
    whole.push_back(5);
    const Generation other = engine.generate(whole, greedy(10));
    EXPECT_EQ(other.statistics.cached_tokens, prefix_cache ? 100 : 0);
    if (!on_cuda()) {
      EXPECT_EQ(g.tokens, other.tokens);
    }
    EXPECT_EQ(prefix->begin().generate(std::vector<TokenId>{}, greedy(3)).tokens.size(), 3u);
    prefix.reset();
    engine.drop_cache();
    EXPECT_EQ(engine.cache().target_free, 256);
    EXPECT_EQ(engine.cache().draft_free, 256);
  }
}

TEST_F(Forks, APrefixThatOthersTookIsComputedAgain) {
  EngineOptions load = pair_.options();
  load.kv_tokens = 256;
  for (const bool prefix_cache : {true, false}) {
    load.prefix_cache = prefix_cache;
    Engine engine = Engine::load(load);
    const Planted planted(Fault::preempted_as_it_ends);
    const Prefix prefix = engine.prefix(long_prompt_);
    EXPECT_FALSE(is_planted(Fault::preempted_as_it_ends)) << "nothing was taken";
    EXPECT_EQ(std::vector<TokenId>(prefix.tokens().begin(), prefix.tokens().end()), long_prompt_);
    EXPECT_EQ(engine.cache().target_shared, 100);
    EXPECT_EQ(engine.cache().evictable, 0);
  }
}

TEST_F(Forks, APrefixThatDoesNotFitIsRefused) {
  EngineOptions load = pair_.options();
  load.kv_tokens = 64;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  EXPECT_NE(error_of([&] { engine.prefix(long_prompt_); }, ErrorKind::usage)
                .find("do not fit the 64 KV slots"),
            std::string::npos);
  EXPECT_NE(error_of([&] { engine.prefix(std::vector<TokenId>{}); }, ErrorKind::usage)
                .find("holds no tokens"),
            std::string::npos);
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
