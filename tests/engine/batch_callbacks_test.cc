// What callers of generate() with many requests rely on beside the texts: who is called on which
// thread, which failures spare which texts, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "engine/lettered_pair.h"

namespace coppice::testing {
namespace {

class ThrowsAfter final : public CustomPolicy {
 public:
  explicit ThrowsAfter(int rounds) : left_(rounds) {}
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    if (left_-- == 0) throw std::runtime_error("policy's own");
    static_cast<void>(tree.draw(evaluated[0]));
    return {};
  }

 private:
  int left_;
};

class BatchCalls : public ::testing::Test {
 protected:
  static constexpr std::size_t none = 1000;
  const TinyPair pair_{endless()};
  Engine engine_ = Engine::load(pair_.options());

  void TearDown() override { expect_nothing_leaked(engine_); }
  std::vector<Request> texts(std::size_t count, std::int32_t tokens = 12) const {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < count; ++i) {
      requests.push_back(request_of(random_tokens(3 + i, 96, 40 + static_cast<unsigned>(i)),
                                    greedy(tokens + static_cast<std::int32_t>(i))));
    }
    return requests;
  }
  /// Each text but `guilty` is what it is alone; on a GPU, where tokens may nearly tie, complete.
  void expect_right(const std::vector<Outcome>& outcomes, const std::vector<Request>& requests,
                    std::size_t guilty = none) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (i == guilty) continue;
      const Generation& g = only(outcomes[i]);
      EXPECT_EQ(g.tokens.size(), static_cast<std::size_t>(requests[i].options.max_new_tokens));
      if (!on_cuda()) {
        EXPECT_EQ(g.tokens, engine_.generate(requests[i].tokens, requests[i].options).tokens);
      }
    }
  }
};

TEST_F(BatchCalls, NothingToDo) {
  int finished = 0;
  EXPECT_TRUE(
      engine_.generate(std::span<const Request>(), [&](std::size_t, Outcome&) { ++finished; })
          .empty());
  EXPECT_EQ(finished, 0);
}

TEST_F(BatchCalls, CallbacksRunOnTheirCallersThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto me = std::this_thread::get_id();
      std::vector<Request> requests = texts(3, 20);
      requests[1].n = 3;
      std::vector<std::vector<TokenId>> streamed(5);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].callback = [&, i](std::int32_t sample, const Piece& piece) {
          EXPECT_EQ(std::this_thread::get_id(), me);
          auto& tokens = streamed[i == 1 ? 2 + static_cast<std::size_t>(sample) : i / 2];
          tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
          return true;
        };
      }
      std::set<std::size_t> ended;
      const std::vector<Outcome> outcomes =
          engine_.generate(requests, [&](std::size_t index, Outcome& outcome) {
            EXPECT_EQ(std::this_thread::get_id(), me);
            EXPECT_TRUE(ended.insert(index).second) << "told twice";
            EXPECT_EQ(outcome.samples.size(), index == 1 ? 3u : 1u);
          });
      EXPECT_EQ(ended.size(), 3u);
      EXPECT_EQ(streamed[0], only(outcomes[0]).tokens);
      EXPECT_EQ(streamed[1], only(outcomes[2]).tokens);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(streamed[2 + i], outcomes[1].samples[i].tokens);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A text whose callback does not return stops neither texts of other threads nor, once it returns,
// itself.
TEST_F(BatchCalls, ASlowCallbackHoldsNobodyUp) {
  std::promise<void> slow_is_in, others_are_done;
  const std::shared_future<void> done = others_are_done.get_future().share();
  std::vector<Request> slow = texts(2, 30), others = texts(5, 30);
  int calls = 0;
  slow[0].callback = [&](std::int32_t, const Piece&) {
    if (++calls == 2) {
      slow_is_in.set_value();
      done.wait();
    }
    return true;
  };
  std::vector<Outcome> of_slow;
  std::thread thread([&] { of_slow = engine_.generate(slow); });
  slow_is_in.get_future().wait();
  expect_right(engine_.generate(others), others);
  others_are_done.set_value();
  thread.join();
  EXPECT_GT(calls, 2);
  expect_right(of_slow, slow);
}

TEST_F(BatchCalls, MayBeginWithinCallbacks) {
  std::vector<Request> outer = texts(3, 20), inner = texts(4, 10);
  int begun = 0;
  outer[1].callback = [&](std::int32_t, const Piece&) {
    if (++begun == 2) {
      for (const Outcome& outcome : engine_.generate(inner)) EXPECT_EQ(error_of(outcome), "");
    }
    return true;
  };
  const std::vector<Outcome> outcomes = engine_.generate(outer);
  EXPECT_GT(begun, 1);
  expect_right(outcomes, outer);
}

TEST_F(BatchCalls, AFailingRequestSparesTheOthers) {
  struct Failure {
    const char* says;
    std::function<void(Request&)> plant;
  };
  const std::vector<Failure> failures = {
      {"n 0", [](Request& r) { r.n = 0; }},
      {"n -3", [](Request& r) { r.n = -3; }},
      {"prompt", [](Request& r) { r.tokens = {}; }},
      {"prompt", [](Request& r) { r.prompt = "both"; }},
      {"96", [](Request& r) { r.tokens[1] = 96; }},
      {"context", [](Request& r) { r.tokens.resize(300, 5); }},
      {"temperature", [](Request& r) { r.options.sampling.temperature = -1.0; }},
      {"tree-size", [](Request& r) { r.options.speculation = Dyspec{100000}; }},
      {"policy's own",
       [](Request& r) {
         r.options.speculation = Custom{[] { return std::make_unique<ThrowsAfter>(0); }};
       }},
      {"policy's own",
       [](Request& r) {
         r.options.speculation = Custom{[] { return std::make_unique<ThrowsAfter>(3); }};
       }},
      {"factory's own",
       [](Request& r) {
         r.options.speculation = Custom{
             []() -> std::unique_ptr<CustomPolicy> { throw std::runtime_error("factory's own"); }};
       }},
      {"callback's own",
       [](Request& r) {
         r.callback = [](std::int32_t, const Piece&) -> bool {
           throw std::runtime_error("callback's own");
         };
       }},
      {"later callback's",
       [](Request& r) {
         r.callback = [calls = 0](std::int32_t, const Piece&) mutable -> bool {
           if (++calls == 3) throw std::runtime_error("later callback's");
           return true;
         };
       }},
  };
  for (const Failure& failure : failures) {
    for (const std::size_t guilty : {0, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << failure.says << ", request " << guilty);
      std::vector<Request> requests = texts(4);
      failure.plant(requests[guilty]);
      std::set<std::size_t> told;
      const std::vector<Outcome> outcomes =
          engine_.generate(requests, [&](std::size_t index, Outcome&) { told.insert(index); });
      ASSERT_EQ(outcomes.size(), 4u);
      EXPECT_EQ(told.size(), 4u);
      const std::string error = error_of(outcomes[guilty]);
      EXPECT_NE(error.find(failure.says), std::string::npos) << error;
      for (const Generation& g : outcomes[guilty].samples) {
        EXPECT_TRUE(g.tokens.empty());
        EXPECT_EQ(g.finish_reason, FinishReason::failed);
      }
      const std::int32_t n = requests[guilty].n;
      EXPECT_EQ(outcomes[guilty].samples.size(), n > 0 ? static_cast<std::size_t>(n) : 0u);
      expect_right(outcomes, requests, guilty);
    }
  }
}

// Among the samples of a request, too, the first failure is named, the others stand.
TEST_F(BatchCalls, AFailingSampleSparesTheOthers) {
  std::vector<Request> requests = texts(2, 20);
  requests[0].n = 4;
  requests[0].callback = [](std::int32_t sample, const Piece&) -> bool {
    if (sample == 1) throw std::runtime_error("sample 1's");
    return true;
  };
  const std::vector<Outcome> outcomes = engine_.generate(requests);
  EXPECT_EQ(error_of(outcomes[0]), "sample 1's");
  ASSERT_EQ(outcomes[0].samples.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcomes[0].samples[i].tokens.size(), i == 1 ? 0u : 20u) << i;
    EXPECT_EQ(outcomes[0].samples[i].finish_reason,
              i == 1 ? FinishReason::failed : FinishReason::length);
  }
  expect_right(outcomes, requests, 0);
}

TEST_F(BatchCalls, WhatFinishedThrowsEndsAll) {
  Sequence sequence = engine_.new_sequence();
  sequence.generate(prompt, greedy(3));
  const std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
  std::vector<Request> requests = texts(5, 20);
  requests[0].options.max_new_tokens = 2;  // the first to end
  requests[4].options.max_new_tokens = 60;
  requests[4].sequence = &sequence;
  int told = 0;
  EXPECT_THROW(engine_.generate(requests,
                                [&](std::size_t, Outcome&) {
                                  ++told;
                                  throw std::runtime_error("mine");
                                }),
               std::runtime_error);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(
      std::equal(before.begin(), before.end(), sequence.tokens().begin(), sequence.tokens().end()))
      << "as a call that throws leaves it";
  EXPECT_EQ(sequence.generate(prompt, greedy(4)).tokens.size(), 4u);
}

TEST_F(BatchCalls, OutcomesMayBeMovedFrom) {
  const std::vector<Request> requests = texts(6);
  std::vector<Outcome> mine(requests.size());
  const std::vector<Outcome> left = engine_.generate(
      requests, [&](std::size_t index, Outcome& outcome) { mine[index] = std::move(outcome); });
  EXPECT_EQ(left.size(), requests.size());
  expect_right(mine, requests);
}

TEST_F(BatchCalls, SequencesGoOnSideBySide) {
  std::vector<Request> requests = texts(3, 10);
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(engine_.new_sequence());
  std::vector<std::vector<TokenId>> whole(3);
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t i = 0; i < 3; ++i) {
      requests[i].sequence = &sequences[i];
      const std::vector<TokenId>& asked = requests[i].tokens;
      whole[i].insert(whole[i].end(), asked.begin(), asked.end());
    }
    const std::vector<Outcome> outcomes = engine_.generate(requests);
    for (std::size_t i = 0; i < 3; ++i) {
      const Generation& g = only(outcomes[i]);
      EXPECT_EQ(g.statistics.prompt_tokens, static_cast<std::int32_t>(whole[i].size()));
      if (!on_cuda()) {
        EXPECT_EQ(g.tokens, engine_.generate(whole[i], requests[i].options).tokens);
      }
      whole[i].insert(whole[i].end(), g.tokens.begin(), g.tokens.end());
      const auto tokens = sequences[i].tokens();
      EXPECT_EQ(std::vector<TokenId>(tokens.begin(), tokens.end()), whole[i]);
    }
  }
}

// However far apart in the list they are.
TEST_F(BatchCalls, ASequenceIsUsedOnceInACall) {
  EngineOptions load = pair_.options();
  load.max_sequences = 1;
  Engine engine = Engine::load(load);
  Sequence sequence = engine.new_sequence();
  std::vector<Request> requests = texts(3);
  requests[0].sequence = requests[2].sequence = &sequence;
  const char* const both = "requests 0 and 2 of this call name the same; give each its own";
  {
    const std::vector<Outcome> outcomes = engine.generate(requests);
    EXPECT_EQ(only(outcomes[0]).tokens.size(), 12u);
    EXPECT_EQ(error_of(outcomes[1]), "");
    EXPECT_NE(error_of(outcomes[2]).find(both), std::string::npos) << error_of(outcomes[2]);
  }
  // Also if the first of them does not begin.
  requests[0].tokens = {-1};
  {
    const std::vector<Outcome> outcomes = engine.generate(requests);
    EXPECT_NE(error_of(outcomes[0]).find("token -1"), std::string::npos) << error_of(outcomes[0]);
    EXPECT_NE(error_of(outcomes[2]).find(both), std::string::npos) << error_of(outcomes[2]);
  }
  EXPECT_EQ(sequence.generate(prompt, greedy(2)).tokens.size(), 2u) << "free again";
  requests = texts(1);
  requests[0].sequence = &sequence;
  EXPECT_NE(error_of(engine_.generate(requests)[0]).find("another engine"), std::string::npos);
  requests[0].n = 2;
  EXPECT_NE(error_of(engine.generate(requests)[0]).find("n 2"), std::string::npos);
}

// The call goes on with what the engine owns, wherever that is now.
TEST_F(BatchCalls, ACallbackMayMoveTheEngine) {
  EngineOptions load = pair_.options();
  load.max_sequences = 2;  // the others are begun behind the move
  Engine engine = Engine::load(load);
  std::optional<Engine> moved;
  std::vector<Request> requests = texts(6);
  requests[0].callback = [&](std::int32_t, const Piece&) {
    if (!moved) moved.emplace(std::move(engine));
    return true;
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  ASSERT_TRUE(moved.has_value());
  expect_right(outcomes, requests);
  expect_nothing_leaked(*moved);
}

TEST_F(BatchCalls, ASequenceThatWasMovedFromIsRefused) {
  EngineOptions load = pair_.options();
  load.prefix_cache = false;  // no text is open before it may run
  load.max_sequences = 1;
  Engine engine = Engine::load(load);
  std::vector<Sequence> sequences, moved;
  for (int i = 0; i < 2; ++i) sequences.push_back(engine.new_sequence());
  std::vector<Request> requests = texts(3);
  requests[1].sequence = &sequences[0];
  requests[2].sequence = &sequences[1];
  requests[0].callback = [&](std::int32_t, const Piece&) {
    if (moved.empty()) moved.push_back(std::move(sequences[1]));
    return true;
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  EXPECT_NE(error_of(outcomes[2]).find("moved from"), std::string::npos) << error_of(outcomes[2]);
  expect_right(outcomes, requests, 2);
}

TEST(BatchTexts, PromptsAndStopTexts) {
  const LetteredPair pair;
  Engine engine = Engine::load(pair.options());
  std::vector<Request> requests(3);
  requests[0].prompt = "Once";
  requests[1].prompt = "\xff";
  requests[2].prompt = "upon a";
  for (Request& request : requests) request.options = greedy(20);
  const std::vector<Outcome> outcomes = engine.generate(requests);
  EXPECT_NE(error_of(outcomes[1]).find("UTF-8"), std::string::npos) << error_of(outcomes[1]);
  const std::string text = only(outcomes[2]).text;
  ASSERT_GT(text.size(), 3u);
  requests[2].options.stop = {text.substr(text.size() / 2, 2)};
  std::string streamed;
  requests[2].callback = [&](std::int32_t, const Piece& piece) {
    streamed += piece.text;
    return true;
  };
  const std::vector<Outcome> stopped = engine.generate(requests);
  EXPECT_EQ(only(stopped[2]).finish_reason, FinishReason::stop);
  EXPECT_EQ(only(stopped[2]).text, text.substr(0, text.find(requests[2].options.stop[0])));
  EXPECT_EQ(streamed, only(stopped[2]).text);
  EXPECT_EQ(only(stopped[0]).text, only(outcomes[0]).text);
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
