// KV that stays in memory: texts that begin alike find it, texts that lack memory take it, and no
// text changes by that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/access.h"
#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "engine/sequence_impl.h"
#include "planted/planted.h"

namespace coppice::testing {
namespace {

class CachedKv : public ::testing::Test {
 protected:
  static constexpr std::int32_t slots = 128;

  Engine load(std::int32_t kv_tokens, std::int32_t max_sequences = 64,
              bool prefix_cache = true) const {
    EngineOptions options = pair_.options();
    options.kv_tokens = kv_tokens;
    options.max_tree_size = 16;
    options.max_sequences = max_sequences;
    options.prefix_cache = prefix_cache;
    return Engine::load(options);
  }
  // Tokens of a sequence whose KV is in memory.
  static std::int32_t kept(Engine& engine, const Sequence& s) {
    return inside(engine).cache->match(s.tokens());
  }
  static GenerateOptions coupled(std::int32_t tokens) {
    GenerateOptions options = greedy(tokens);
    options.sampling.temperature = 0.9;
    options.acceptance = Acceptance::coupled;
    return options;
  }

  const TinyPair pair_{endless()};
  Engine engine_ = load(slots);
};

// What many texts share is computed once by the draft, too: what is idle need not make room for
// more.
TEST_F(CachedKv, StaysBesideManyTextsThatShareAPrompt) {
  Engine engine = load(512);
  const std::vector<TokenId> idle = random_tokens(100, 96, 5), shared = random_tokens(100, 96, 6);
  GenerateOptions options = greedy(4);
  options.speculation = Chain{2};
  engine.generate(idle, options);
  std::vector<Request> requests(8);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].tokens = shared;
    requests[i].tokens.push_back(static_cast<TokenId>(i + 1));
    requests[i].options = options;
  }
  for (const Outcome& outcome : engine.generate(requests)) EXPECT_FALSE(outcome.error);
  EXPECT_EQ(engine.cache().evicted_tokens, 0);
}

// Whose draft was put off, lacks no KV for it, and grows no tree.
TEST_F(CachedKv, StaysBesideTextsWhoseDraftIsPutOff) {
  Engine engine = load(352);
  CostTable costs;  // among others no draft can pay
  costs.target =
      PassCosts(1, 100, {{1, 1.0, 1.0}, {2, 1.2, 1.2}, {4, 2.0, 2.0}, {512, 256., 256.}});
  costs.draft = PassCosts(1, 100, {{1, 0.05, 0.05}, {512, 25.6, 25.6}});
  inside(engine).costs = costs;
  inside(engine).costs_are_saved = true;
  const std::vector<TokenId> idle = random_tokens(200, 96, 5);
  engine.generate(idle, greedy(4));
  std::vector<Request> requests(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    requests[i].tokens = random_tokens(20, 96, 6 + i);
    requests[i].options = greedy(8);
    requests[i].options.speculation = Chain{};
    requests[i].options.lookup = Lookup::none;  // which needs no draft to grow a tree
  }
  for (const Outcome& outcome : engine.generate(requests)) {
    EXPECT_EQ(only(outcome).statistics.draft_passes, 0);
  }
  EXPECT_EQ(engine.cache().evicted_tokens, 0);
}

// Its KV is what every text leaves: the next one with that prompt computes its last tokens alone.
TEST_F(CachedKv, IsFoundByANewText) {
  Engine plenty = load(4096), without = load(4096, 64, false);
  for (GenerateOptions options : {greedy(30), coupled(30)}) {
    plenty.drop_cache();
    const std::vector<TokenId> asked = random_tokens(100, 96, 5);
    const Generation first = plenty.generate(asked, options);
    EXPECT_EQ(first.statistics.cached_tokens, 0);
    EXPECT_EQ(first.statistics.cached_draft_tokens, 0);
    const Generation again = plenty.generate(asked, options);
    EXPECT_EQ(again.statistics.cached_tokens, 98);
    EXPECT_EQ(again.statistics.cached_draft_tokens, 100);
    EXPECT_EQ(again.statistics.prefill_tokens, 1);
    options.sampling.top_k = 3;
    std::vector<TokenId> longer = asked;
    longer.resize(60);
    longer.push_back(5);
    longer.push_back(6);
    EXPECT_EQ(plenty.generate(longer, options).statistics.cached_tokens, 60);
    options.sampling.top_k = 0;
    const Generation other = without.generate(asked, options);
    EXPECT_EQ(without.generate(asked, options).statistics.cached_tokens, 0);
    EXPECT_EQ(without.cache().target_free, without.cache().target_slots);
    if (!on_cuda()) {
      expect_equal(first, again);
      expect_equal(first, other);
    }
  }
  expect_nothing_leaked(plenty);
}

// A fixed tree under rejection: with the cache each step is what it was without.
TEST_F(CachedKv, ChangesNoSeedsText) {
  Engine plenty = load(4096);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    GenerateOptions options = greedy(25);
    options.sampling.temperature = 1.0;
    options.acceptance = Acceptance::rejection;
    options.speculation = Dyspec{6, true};
    options.seed = seed;
    const std::vector<TokenId> asked = random_tokens(2 + seed * 8, 96, 8);
    plenty.drop_cache();
    const Generation first = plenty.generate(asked, options),
                     again = plenty.generate(asked, options);
    EXPECT_GT(again.statistics.cached_tokens + (seed == 0 ? 1 : 0), 0);
    if (!on_cuda()) {
      expect_equal(first, again);
    }
  }
}

// Each of the samples begins where one of them has computed the prompt.
TEST_F(CachedKv, SamplesOfAPromptComputeItOnce) {
  Engine plenty = load(4096);
  Request request = request_of(random_tokens(150, 96, 4), coupled(12));
  request.n = 6;
  const std::vector<Outcome> outcomes = plenty.generate({&request, 1});
  std::int64_t cached = 0, drafted = 0;
  for (const Generation& sample : outcomes[0].samples) {
    EXPECT_EQ(sample.tokens.size(), 12u);
    cached += sample.statistics.cached_tokens;
    drafted += sample.statistics.cached_draft_tokens;
  }
  // 149 by one, one by each of the others beside the last.
  EXPECT_EQ(cached, 5 * 148);
  EXPECT_EQ(drafted, 5 * 150);
  const CacheStatistics cache = plenty.cache();
  EXPECT_EQ(cache.prompt_tokens, 6 * 150);
  EXPECT_EQ(cache.cached_tokens, cached);
  EXPECT_EQ(cache.cached_draft_tokens, drafted);
  EXPECT_LT(cache.read_by_tree, cache.read_by_text / 3);
  if (!on_cuda()) {
    Engine without = load(4096, 64, false);
    for (std::int32_t i = 0; i < request.n; ++i) {
      GenerateOptions options = request.options;
      options.stream += static_cast<std::uint64_t>(i);
      expect_equal(outcomes[0].samples[static_cast<std::size_t>(i)],
                   without.generate(request.tokens, options));
    }
  }
  expect_nothing_leaked(plenty);
}

// Tokens of prompts are cached or computed. Who waits for another's tokens finds them later than
// what was there before.
TEST_F(CachedKv, AHitIsCountedOnce) {
  for (const Fault fault : {Fault::none, Fault::hit_counted_twice}) {
    Engine plenty = load(4096);
    const Planted planted(fault);
    std::vector<TokenId> asked = random_tokens(150, 96, 4);
    plenty.generate(std::span(asked).first(60), greedy(1));
    std::vector<Request> requests(6, request_of(asked, coupled(4)));
    std::vector<std::int32_t> computed(requests.size());
    inside(plenty).observer = [&](const StepView& view) {
      computed[view.key.sequence] += view.prefill_rows;
    };
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].options.stream = i;
    const std::vector<Outcome> outcomes = plenty.generate(requests);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      // The last token is the root, which every step computes.
      if (only(outcomes[i]).statistics.cached_tokens + computed[i] != 149) ++wrong;
    }
    EXPECT_EQ(computed[0], 89);
    EXPECT_EQ(wrong, fault == Fault::none ? 0u : 5u);
  }
}

// A policy in whose rounds others drop what is cached.
class DropsTheCache final : public CustomPolicy {
 public:
  explicit DropsTheCache(Engine& engine) : engine_(engine) {}
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    engine_.drop_cache();
    return policy_.grow(tree, evaluated);
  }

 private:
  Engine& engine_;
  TwoOfEach policy_;
};

// What a step reads stays, whoever wants memory while it is under way.
TEST_F(CachedKv, IsNotTakenFromAPassUnderWay) {
  Engine plenty = load(1024);
  std::vector<Request> requests(4, request_of(random_tokens(70, 96, 6), coupled(20)));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].options.stream = i;
    requests[i].options.speculation =
        Custom{[&] { return std::make_unique<DropsTheCache>(plenty); }, "drops", 6};
  }
  Engine without = load(1024, 64, false);
  std::vector<Request> plain = requests;
  for (Request& request : plain) request.options.speculation = Plain{};
  const std::vector<Generation> alone = one_by_one(without, plain);
  for (const Fault fault : {Fault::none, Fault::evicts_pinned}) {
    const Planted planted(fault);
    const std::vector<Outcome> together = plenty.generate(requests);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (error_of(together[i]).empty() && only(together[i]).tokens == alone[i].tokens) continue;
      ++wrong;
    }
    if (fault == Fault::evicts_pinned) {
      EXPECT_GT(wrong, 0u) << "eviction during a pass";
    } else if (!on_cuda()) {
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// The text that needs the memory, and the sequence that gave it, are those of an engine with
// plenty.
TEST_F(CachedKv, ThatIsTakenChangesNoText) {
  Engine plenty = load(4096);
  const std::vector<TokenId> more = {9, 70, 5};
  for (const GenerateOptions& options : {greedy(60), coupled(60)}) {
    std::vector<std::vector<TokenId>> texts[2];
    for (Engine* const engine : {&plenty, &engine_}) {
      engine->drop_cache();
      auto& mine = texts[engine == &engine_ ? 1 : 0];
      Sequence idle = engine->new_sequence();
      idle.generate(prompt, options);
      const std::int32_t before = kept(*engine, idle);
      EXPECT_EQ(before, std::ssize(idle.tokens()) - 1);
      // 110 tokens and 64 of the sequence do not fit 128 slots.
      GenerateOptions longer = options;
      longer.max_new_tokens = 105;
      longer.stream = 1;
      const std::vector<TokenId> another = {2, 7, 3, 9, 4};
      const Generation other = engine->generate(another, longer);
      EXPECT_EQ(other.finish_reason, FinishReason::length);
      EXPECT_EQ(other.tokens.size(), 105u);
      EXPECT_EQ(other.statistics.preemptions, 0);
      mine.push_back(other.tokens);
      EXPECT_EQ(idle.tokens().size(), prompt.size() + 60) << "tokens stay";
      const std::int32_t left = kept(*engine, idle);
      if (engine == &engine_) {
        EXPECT_LT(left, before);
      } else {
        EXPECT_EQ(left, before);
      }
      const Generation next = idle.generate(more, options);
      EXPECT_EQ(next.statistics.cached_tokens, left);
      EXPECT_EQ(next.tokens.size(), 60u);
      mine.push_back(next.tokens);
      mine.push_back(tokens_of(idle));
    }
    if (!on_cuda()) {
      EXPECT_EQ(texts[0], texts[1]);
    }
  }
  expect_nothing_leaked(engine_);
}

TEST_F(CachedKv, OfTheLeastRecentlyUsedIsTakenFirst) {
  std::vector<Sequence> idle;
  for (TokenId i = 0; i < 3; ++i) {
    idle.push_back(engine_.new_sequence());
    idle.back().generate(std::vector<TokenId>{i, 7, 3, 9, 4}, greedy(20));
  }
  idle[0].generate(prompt, greedy(1));  // so that the second one was not used for longest
  const std::int32_t before[] = {kept(engine_, idle[0]), kept(engine_, idle[1]),
                                 kept(engine_, idle[2])};
  const std::vector<TokenId> another = {50, 7, 3, 9, 4};
  ASSERT_EQ(engine_.generate(another, greedy(50)).tokens.size(), 50u);
  EXPECT_LT(kept(engine_, idle[1]), before[1]);
  EXPECT_EQ(kept(engine_, idle[0]), before[0]);
  engine_.drop_cache();
  EXPECT_EQ(kept(engine_, idle[0]) + kept(engine_, idle[1]) + kept(engine_, idle[2]), 0);
}

// A text ends for lack of memory only when there is nothing left to take.
TEST_F(CachedKv, IsTakenToTheLastSlot) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(60));
  const std::vector<TokenId> another = {2, 7, 3, 9, 4};
  const Generation g = engine_.generate(another, greedy(190));
  EXPECT_EQ(g.finish_reason, FinishReason::memory);
  EXPECT_EQ(g.tokens.size() + prompt.size(), 129u) << "all tokens but the last hold a slot";
  EXPECT_EQ(kept(engine_, idle), 0);
  EXPECT_EQ(idle.generate(prompt, greedy(3)).tokens.size(), 3u);
}

// What it wrote itself, and somebody keeps, too, it has once before memory ends it.
TEST_F(CachedKv, IsNotHeldTwiceToTheLastSlot) {
  const Generation whole = engine_.generate(prompt, greedy(190));
  ASSERT_EQ(whole.tokens.size() + prompt.size(), 129u);
  engine_.drop_cache();
  std::vector<TokenId> beginning = prompt;
  beginning.insert(beginning.end(), whole.tokens.begin(), whole.tokens.begin() + 60);
  const Prefix kept = engine_.prefix(beginning);
  for (const Speculation& speculation : {Speculation(Dyspec{8}), Speculation(Plain{})}) {
    Sequence sequence = engine_.new_sequence();
    GenerateOptions options = greedy(190);
    options.speculation = speculation;
    const Generation g = sequence.generate(prompt, options);
    EXPECT_EQ(g.finish_reason, FinishReason::memory);
    if (!on_cuda()) {
      EXPECT_EQ(g.tokens, whole.tokens);
    }
  }
  EXPECT_EQ(engine_.cache().target_shared - engine_.cache().evictable, 65);
}

// Nobody waits in the queue for memory that nobody uses.
TEST_F(CachedKv, IsTakenBeforeATextWaits) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(90));
  std::vector<Request> requests(2, request_of({2, 3, 9, 4}, greedy(20)));
  for (Request& request : requests) request.options.speculation = Plain{};
  for (const Outcome& outcome : engine_.generate(requests)) {
    EXPECT_EQ(only(outcome).statistics.batch_mean, 2.0);
    EXPECT_EQ(only(outcome).finish_reason, FinishReason::length);
  }
  EXPECT_LT(kept(engine_, idle), 94);
}

// What would not let a text in is not taken for it.
TEST_F(CachedKv, IsNotTakenForNothing) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(10));
  const std::int32_t before = kept(engine_, idle);
  std::vector<Request> requests(2, request_of({2, 3, 9, 4}, greedy(20)));
  for (Request& request : requests) request.options.speculation = Plain{};
  requests[1].tokens.assign(90, 3);  // which waits until the first has ended
  std::int32_t seen = -1;
  requests[0].callback = [&](std::int32_t, const Piece&) {
    seen = kept(engine_, idle);
    return true;
  };
  engine_.generate(requests);
  EXPECT_EQ(seen, before);
}

// Who shares most with what is there goes first, but nobody waits without end.
TEST_F(CachedKv, LetsTextsInByWhatTheyShare) {
  Engine one = load(4096, 1);
  const std::vector<TokenId> known = random_tokens(80, 96, 4);
  one.generate(known, greedy(1));
  std::vector<Request> requests;
  for (TokenId t = 0; t < 70; ++t) {
    std::vector<TokenId> tokens = known;
    tokens.push_back(t);
    requests.push_back(request_of(
        t < 2 ? random_tokens(20, 96, 50 + static_cast<std::uint32_t>(t)) : tokens, greedy(1)));
    requests.back().options.speculation = Plain{};
  }
  std::vector<std::size_t> order;
  one.generate(requests, [&](std::size_t index, Outcome&) { order.push_back(index); });
  ASSERT_EQ(order.size(), 70u);
  EXPECT_EQ(order[0], 2u);
  EXPECT_EQ(order[10], 12u);
  const auto stranger = std::find(order.begin(), order.end(), 0u) - order.begin();
  EXPECT_GT(stranger, 20);
  EXPECT_LE(stranger, 65) << "passed over 64 times";
}

// Prompts in groups, shuffled, are all computed once if it fits, and little more in a
// quarter of the memory; with a draft as without.
TEST_F(CachedKv, SpeculationCostsNoHits) {
  constexpr std::uint32_t groups = 16, of_group = 9;
  constexpr std::int32_t common = 150, own = 10,
                         distinct = groups * common + groups * of_group * own;
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < groups * of_group; ++i) {
    std::vector<TokenId> tokens = random_tokens(common, 96, 1 + i % groups);
    tokens[0] = static_cast<TokenId>(i % groups);
    for (const TokenId token : random_tokens(own, 96, 100 + i)) tokens.push_back(token);
    tokens[common] = static_cast<TokenId>(i / groups);
    requests.push_back(request_of(std::move(tokens), greedy(8)));
  }
  std::shuffle(requests.begin(), requests.end(), std::mt19937(3));
  for (const std::int32_t memory : {8192, distinct / 4}) {
    Engine engine = load(memory, 4);
    std::vector<std::int32_t> computed;
    for (const Speculation& speculation : {Speculation(Plain{}), Speculation(Dyspec{6})}) {
      engine.drop_cache();
      std::int32_t& tokens = computed.emplace_back(0);
      for (Request& request : requests) request.options.speculation = speculation;
      for (const Outcome& outcome : engine.generate(requests)) {
        const Statistics& s = only(outcome).statistics;
        tokens += s.prompt_tokens - s.cached_tokens;
        EXPECT_EQ(s.preemptions, 0);
      }
      EXPECT_LE(tokens, memory == 8192 ? distinct : distinct * 11 / 10) << memory;
    }
    EXPECT_TRUE(memory < 8192 || computed[0] == computed[1]);
    expect_nothing_leaked(engine);
  }
}

TEST_F(CachedKv, IsTakenByATreeThatIsJudgedAlone) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(110));
  const std::vector<TokenId> longer(60, 3);
  EXPECT_GT(engine_.judge_tree(longer, greedy(20)).nodes.size(), 4u);
  EXPECT_LT(kept(engine_, idle), 70);
}

// Automatic sizes ask for costs, which are measured in free slots.
TEST_F(CachedKv, IsTakenByTheMeasurementOfCosts) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(118));
  GenerateOptions automatic = greedy(5);
  automatic.speculation = Dyspec{};
  EXPECT_EQ(engine_.generate(prompt, automatic).used.policy, "dyspec");
  EXPECT_FALSE(inside(engine_).costs->cut);
}

// Sequences of several threads in memory for two of them: each text is right.
TEST_F(CachedKv, IsTakenByManyThreads) {
  constexpr std::size_t threads = 4;
  constexpr int turns = 6;
  std::vector<std::vector<TokenId>> alone(threads), together(threads);
  const auto talk = [&](Engine& engine, std::size_t thread, std::vector<TokenId>& text) {
    Sequence sequence = engine.new_sequence();
    GenerateOptions options = coupled(10);
    options.stream = thread;
    for (int turn = 0; turn < turns; ++turn) {
      const Generation g = sequence.generate(std::vector<TokenId>{7, 3}, options);
      EXPECT_EQ(g.finish_reason, FinishReason::length);
    }
    text = tokens_of(sequence);
  };
  Engine plenty = load(4096);
  for (std::size_t t = 0; t < threads; ++t) talk(plenty, t, alone[t]);
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] { talk(engine_, t, together[t]); });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t t = 0; t < threads; ++t) {
    EXPECT_EQ(together[t].size(), static_cast<std::size_t>(turns) * 12);
    if (!on_cuda()) {
      EXPECT_EQ(together[t], alone[t]);
    }
  }
  expect_nothing_leaked(engine_);
}

// What is kept of texts that ended is bounded by the pools, and so are the nodes.
TEST_F(CachedKv, OfManyTextsTakesNoMoreMemory) {
  for (std::uint32_t text = 0; text < 400; ++text) {
    const std::vector<TokenId> asked = random_tokens(3 + text % 20, 96, text);
    ASSERT_EQ(engine_.generate(asked, greedy(4)).tokens.size(), 4u);
    const CacheStatistics cache = engine_.cache();
    ASSERT_EQ(cache.target_free + cache.target_shared, slots);
    ASSERT_LE(cache.nodes, slots);
  }
  EXPECT_GT(engine_.cache().evicted_tokens, 4000);
  expect_nothing_leaked(engine_);
}

}  // namespace
}  // namespace coppice::testing
