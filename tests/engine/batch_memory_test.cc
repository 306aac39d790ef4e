// The host's memory runs out at any allocation of a call that writes four texts: what fails says
// so, the others are right, and no KV slot is lost.
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/failing_allocation.h"
#include "engine/lettered_pair.h"
#include "engine/near_tie.h"
#include "reference/random_tokens.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

// Sanitized, an allocation takes several times as long.
constexpr long stride = sanitized ? 5 : 1;

// Four texts of different policies, the last one of a sequence.
std::vector<Request> four(Acceptance acceptance) {
  std::vector<Request> requests;
  for (const Speculation& speculation :
       std::vector<Speculation>{Dyspec{6}, Plain{}, ExpandRerank{6}, Chain{4}}) {
    GenerateOptions options;
    options.speculation = speculation;
    options.max_new_tokens = 8;
    options.sampling.temperature = acceptance == Acceptance::coupled ? 0.7 : 0.0;
    options.acceptance = acceptance;
    options.stream = requests.size();
    if (requests.empty()) options.lookup = Lookup::text;
    if (requests.size() == 3) options.lookup = Lookup::engine;
    options.logprobs = on_cuda() || requests.size() % 2 == 0;  // near-ties are told by them
    requests.push_back(
        request_of(random_tokens(30, 96, 5 + static_cast<unsigned>(requests.size())), options));
  }
  return requests;
}

TEST(BatchOutOfMemory, LosesNothing) {
  TinyModel shape;
  shape.eos_tokens = {};
  const TinyPair pair(shape, 0.2);
  EngineOptions loaded = pair.options();
  loaded.max_tree_size = 32;
  loaded.max_sequences = 4;
  int calls_failed = 0, texts_failed = 0, whole = 0;
  for (const Acceptance acceptance : {Acceptance::coupled, Acceptance::rejection}) {
    std::vector<Request> requests = four(acceptance);
    Engine other = Engine::load(loaded);
    const std::vector<Generation> alone = one_by_one(other, requests);
    std::optional<Engine> engine;
    for (long last = 0; last < 900; last += stride * (last < 300 ? 1 : 3)) {
      // Scratch memory that is there already hides failures.
      if (last % 10 < 9) engine.emplace(Engine::load(loaded));
      SCOPED_TRACE(::testing::Message() << "allocation " << last);
      {
        Sequence sequence = engine->new_sequence();
        requests[3].sequence = &sequence;
        std::vector<Outcome> outcomes;
        allocations_left = last;
        try {
          outcomes = engine->generate(requests);
          allocations_left = -1;
        } catch (const std::exception&) {
          allocations_left = -1;
          ++calls_failed;
        }
        std::size_t failed = 0;
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
          if (outcomes[i].error) {
            ++failed;
            EXPECT_NE(error_of(outcomes[i]), "");
            EXPECT_TRUE(i != 3 || sequence.tokens().empty());
          } else {
            SCOPED_TRACE(::testing::Message() << "text " << i);
            expect_same_up_to_near_ties(requests[i], engine->vocab_size(), alone[i],
                                        only(outcomes[i]));
          }
        }
        EXPECT_LE(failed, 1u) << "one allocation failed";
        texts_failed += static_cast<int>(failed);
        if (!outcomes.empty() && failed == 0) ++whole;
        // The engine is as good as before.
        if (last % 10 == 9) {
          requests[3].sequence = nullptr;
          const std::vector<Outcome> again = engine->generate(requests);
          for (std::size_t i = 0; i < again.size(); ++i) {
            SCOPED_TRACE(::testing::Message() << "text " << i);
            expect_same_up_to_near_ties(requests[i], engine->vocab_size(), alone[i],
                                        only(again[i]));
          }
        }
      }
      expect_nothing_leaked(*engine);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  std::cout << calls_failed << " calls failed, " << texts_failed << " texts, " << whole
            << " calls brought all\n";
  EXPECT_GT(calls_failed + texts_failed, 50);
  EXPECT_GT(whole, 0);
}

// A fork, a text that begins with a prefix, and two that begin alike, in memory for a part of them:
// what the tree of KV does without memory, less is shared by.
TEST(BatchOutOfMemory, LosesNothingOfWhatIsShared) {
  TinyModel shape;
  shape.eos_tokens = {};
  const TinyPair pair(shape, 0.2);
  EngineOptions loaded = pair.options();
  loaded.max_tree_size = 16;
  loaded.kv_tokens = 120;
  loaded.max_sequences = 4;
  EngineOptions plenty = loaded;
  plenty.kv_tokens = 1024;
  plenty.prefix_cache = false;
  Engine other = Engine::load(plenty);
  const std::vector<TokenId> all = random_tokens(40, 96, 1), more = random_tokens(4, 96, 2);
  std::vector<Request> requests = four(Acceptance::coupled);
  requests[1].options.sampling.temperature = 0.0;  // taken back, it would have other noise
  std::vector<Generation> alone;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].options.max_new_tokens = 40;
    requests[i].tokens.resize(3 + i);
    const std::vector<TokenId> own = requests[i].tokens;
    requests[i].tokens = all;
    if (i % 2 == 0) requests[i].tokens.insert(requests[i].tokens.end(), more.begin(), more.end());
    requests[i].tokens.insert(requests[i].tokens.end(), own.begin(), own.end());
    alone.push_back(other.generate(requests[i].tokens, requests[i].options));
  }
  int calls_failed = 0, texts_failed = 0, whole = 0, preempted = 0;
  std::optional<Engine> engine;
  for (long last = 0; last < 1600; last += stride * (last < 400 ? 1 : 5)) {
    if (last % 4 == 0) engine.emplace(Engine::load(loaded));
    SCOPED_TRACE(::testing::Message() << "allocation " << last);
    {
      std::vector<TokenId> pinned = all;
      pinned.insert(pinned.end(), more.begin(), more.end());
      Sequence trunk = engine->new_sequence();
      GenerateOptions one = requests[0].options;
      one.max_new_tokens = 1;
      trunk.generate(all, one);
      std::vector<Request> mine = requests;
      std::vector<Outcome> outcomes;
      allocations_left = last;
      try {
        Sequence fork = trunk.fork();
        fork.rewind(static_cast<std::int32_t>(all.size()));
        const Prefix prefix = engine->prefix(pinned);
        Sequence begun = prefix.begin();
        mine[0].sequence = &begun;
        mine[0].tokens.erase(mine[0].tokens.begin(), mine[0].tokens.begin() + std::ssize(pinned));
        mine[1].tokens.erase(mine[1].tokens.begin(), mine[1].tokens.begin() + std::ssize(all));
        mine[1].sequence = &fork;
        outcomes = engine->generate(mine);
        allocations_left = -1;
      } catch (const std::exception&) {
        allocations_left = -1;
        ++calls_failed;
      }
      std::size_t failed = 0;
      for (std::size_t i = 0; i < outcomes.size(); ++i) {
        if (outcomes[i].error) {
          ++failed;
          continue;
        }
        SCOPED_TRACE(::testing::Message() << "text " << i);
        preempted += only(outcomes[i]).statistics.preemptions;
        expect_same_up_to_near_ties(requests[i], engine->vocab_size(), alone[i], only(outcomes[i]));
      }
      EXPECT_LE(failed, 1u) << "one allocation failed";
      texts_failed += static_cast<int>(failed);
      if (!outcomes.empty() && failed == 0) ++whole;
    }
    expect_nothing_leaked(*engine);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  std::cout << calls_failed << " calls failed, " << texts_failed << " texts, " << whole
            << " calls brought all, " << preempted << " preempted\n";
  EXPECT_GT(calls_failed, 20);
  EXPECT_GT(texts_failed, 50);
  EXPECT_GT(whole, 0);
  EXPECT_GT(preempted, 0);
}

// A text that is cancelled shows what it held back as a possible stop text: without memory for that
// it fails, and the thread that writes submissions goes on.
TEST(BatchOutOfMemory, CancelledTextsFailAlone) {
  TinyModel shape;
  shape.eos_tokens = {};
  const LetteredPair pair(shape, 0.2);
  Engine engine = Engine::load(pair.options());
  Request request;
  request.prompt = "a text";
  request.options.max_new_tokens = 60;
  request.options.speculation = Plain{};
  const std::string whole = engine.generate(request.prompt, request.options).text;
  ASSERT_EQ(whole.size(), 60u);
  request.options.stop = {whole.substr(1, 50) + (whole[51] == '#' ? "+" : "#")};
  int failed = 0;
  for (long last = 0;; ++last) {
    SCOPED_TRACE(::testing::Message() << "allocation " << last);
    std::promise<Submission*> begun;
    std::int32_t pieces = 0;
    long left = -1;
    request.callback = [&, waits = begun.get_future().share()](std::int32_t, const Piece&) {
      if (++pieces != 40) return true;
      waits.get()->cancel();
      allocations_left = last;
      return true;
    };
    Submission submission =
        engine.submit(request, [&](Outcome&) { left = std::exchange(allocations_left, -1); });
    begun.set_value(&submission);
    const Outcome outcome = submission.wait();
    if (outcome.error) {
      ++failed;
      EXPECT_NE(error_of(outcome).find("memory ran out"), std::string::npos) << error_of(outcome);
    } else {
      EXPECT_EQ(only(outcome).finish_reason, FinishReason::cancelled);
      EXPECT_EQ(only(outcome).text, whole.substr(0, 40));
    }
    expect_nothing_leaked(engine);
    ASSERT_FALSE(HasFailure());
    if (left > 0) break;
  }
  EXPECT_GT(failed, 1);
}

}  // namespace
}  // namespace coppice::testing
