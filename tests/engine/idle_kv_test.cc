// Texts that lack memory take KV of sequences that nobody generates with, which go on as if it had
// stayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "engine/sequence_impl.h"

namespace coppice::testing {
namespace {

class IdleKvTaken : public ::testing::Test {
 protected:
  static constexpr std::int32_t slots = 128;

  Engine load(std::int32_t kv_tokens, std::int32_t max_sequences = 64) const {
    EngineOptions options = pair_.options();
    options.kv_tokens = kv_tokens;
    options.max_tree_size = 16;
    options.max_sequences = max_sequences;
    return Engine::load(options);
  }
  static SequenceState& state_of(const Sequence& sequence) {
    return SequenceAccess::impl(sequence)->state;
  }
  static std::int32_t target_kv(const Sequence& s) { return state_of(s).target_slots.size(); }
  static std::int32_t draft_kv(const Sequence& s) { return state_of(s).draft_slots.size(); }
  static GenerateOptions coupled(std::int32_t tokens) {
    GenerateOptions options = greedy(tokens);
    options.sampling.temperature = 0.9;
    options.acceptance = Acceptance::coupled;
    return options;
  }

  const TinyPair pair_{endless()};
  Engine engine_ = load(slots);
};

// The text that needs the memory, and the sequence that gave it, are those of an engine with
// plenty.
TEST_F(IdleKvTaken, ChangesNoText) {
  Engine plenty = load(4096);
  const std::vector<TokenId> more = {9, 70, 5};
  for (const GenerateOptions& options : {greedy(60), coupled(60)}) {
    std::vector<std::vector<TokenId>> texts[2];
    for (Engine* const engine : {&plenty, &engine_}) {
      auto& mine = texts[engine == &engine_ ? 1 : 0];
      Sequence idle = engine->new_sequence();
      idle.generate(prompt, options);
      const std::int32_t kept = target_kv(idle);
      // 110 tokens and 64 of the sequence do not fit 128 slots.
      GenerateOptions longer = options;
      longer.max_new_tokens = 105;
      longer.stream = 1;
      const Generation other = engine->generate(prompt, longer);
      EXPECT_EQ(other.finish_reason, FinishReason::length);
      EXPECT_EQ(other.tokens.size(), 105u);
      EXPECT_EQ(other.statistics.preemptions, 0);
      mine.push_back(other.tokens);
      EXPECT_EQ(idle.tokens().size(), prompt.size() + 60) << "tokens stay";
      if (engine == &engine_) {
        EXPECT_LT(target_kv(idle), kept);
        EXPECT_LT(draft_kv(idle), kept);
      } else {
        EXPECT_EQ(target_kv(idle), kept);
      }
      const std::int32_t left = target_kv(idle);
      const Generation next = idle.generate(more, options);
      EXPECT_EQ(next.statistics.cached_tokens, left);
      // 5 + 60 + 3 tokens of prompt are there.
      EXPECT_EQ(next.tokens.size(), 60u);
      mine.push_back(next.tokens);
      mine.emplace_back(idle.tokens().begin(), idle.tokens().end());
    }
    if (!on_cuda()) {
      EXPECT_EQ(texts[0], texts[1]);
    }
  }
  expect_nothing_leaked(engine_);
}

TEST_F(IdleKvTaken, OfTheLeastRecentlyUsedFirst) {
  std::vector<Sequence> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(engine_.new_sequence());
    idle.back().generate(prompt, greedy(20));
  }
  idle[0].generate(prompt, greedy(1));  // so that the second one was not used for longest
  const std::int32_t kept[] = {target_kv(idle[0]), target_kv(idle[1]), target_kv(idle[2])};
  ASSERT_EQ(engine_.generate(prompt, greedy(50)).tokens.size(), 50u);
  EXPECT_LT(target_kv(idle[1]), kept[1]);
  EXPECT_EQ(target_kv(idle[0]), kept[0]);
  ASSERT_EQ(engine_.generate(prompt, greedy(90)).tokens.size(), 90u);
  EXPECT_EQ(target_kv(idle[1]), 0);
  EXPECT_LT(target_kv(idle[2]), kept[2]);
}

// A text ends for lack of memory only when there is nothing left to take.
TEST_F(IdleKvTaken, ToTheLastSlot) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(60));
  const Generation g = engine_.generate(prompt, greedy(190));
  EXPECT_EQ(g.finish_reason, FinishReason::memory);
  EXPECT_EQ(g.tokens.size() + prompt.size(), 129u) << "all tokens but the last hold a slot";
  EXPECT_EQ(target_kv(idle), 0);
  EXPECT_EQ(draft_kv(idle), 0);
  EXPECT_EQ(idle.generate(prompt, greedy(3)).tokens.size(), 3u);
}

// Nobody waits in the queue for memory that an idle sequence has.
TEST_F(IdleKvTaken, BeforeATextWaits) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(90));
  std::vector<Request> requests(2, request_of(prompt, greedy(20)));
  for (Request& request : requests) request.options.speculation = Plain{};
  for (const Outcome& outcome : engine_.generate(requests)) {
    EXPECT_EQ(only(outcome).statistics.batch_mean, 2.0);
    EXPECT_EQ(only(outcome).finish_reason, FinishReason::length);
  }
  EXPECT_LT(target_kv(idle), 94);
}

// What would not let a text in is not taken for it.
TEST_F(IdleKvTaken, NotForNothing) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(10));
  const std::int32_t kept = target_kv(idle);
  std::vector<Request> requests(2, request_of(prompt, greedy(20)));
  for (Request& request : requests) request.options.speculation = Plain{};
  requests[1].tokens.assign(90, 3);  // which waits until the first has ended
  std::int32_t seen = -1;
  requests[0].callback = [&](std::int32_t, const Piece&) {
    seen = target_kv(idle);
    return true;
  };
  engine_.generate(requests);
  EXPECT_EQ(seen, kept);
}

// A sequence that comes back while another runs: its KV is its own again.
TEST_F(IdleKvTaken, NotOfASequenceInUse) {
  Sequence first = engine_.new_sequence(), second = engine_.new_sequence();
  first.generate(prompt, greedy(30));
  second.generate(prompt, greedy(30));
  const auto both = [&] {
    std::vector<Request> requests(2, request_of({9, 9}, greedy(20)));
    requests[0].sequence = &first;
    requests[1].sequence = &second;
    const std::vector<Outcome> outcomes = engine_.generate(requests);
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(only(outcome).tokens.size(), 20u);
    }
  };
  both();
  both();  // 2 * 79 tokens: one after the other
  EXPECT_EQ(inside(engine_).target.pool->free_slots(),
            slots - target_kv(first) - target_kv(second));
}

TEST_F(IdleKvTaken, ByATreeThatIsJudgedAlone) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(110));
  const std::vector<TokenId> longer(60, 3);
  EXPECT_GT(engine_.judge_tree(longer, greedy(20)).nodes.size(), 4u);
  EXPECT_LT(target_kv(idle), 70);
}

// Automatic sizes ask for costs, which are measured in free slots.
TEST_F(IdleKvTaken, ByTheMeasurementOfCosts) {
  Sequence idle = engine_.new_sequence();
  idle.generate(prompt, greedy(118));
  GenerateOptions automatic = greedy(5);
  automatic.speculation = Dyspec{};
  EXPECT_EQ(engine_.generate(prompt, automatic).used.policy, "dyspec");
  EXPECT_FALSE(inside(engine_).costs->cut);
}

// Sequences of several threads in memory for two of them: each text is right.
TEST_F(IdleKvTaken, ByManyThreads) {
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
    text.assign(sequence.tokens().begin(), sequence.tokens().end());
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

}  // namespace
}  // namespace coppice::testing
