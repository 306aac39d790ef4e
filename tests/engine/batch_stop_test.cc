// A call with many requests that is asked to stop.
#include <gtest/gtest.h>

#include <cstddef>
#include <future>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"

namespace coppice::testing {
namespace {

class BatchStops : public ::testing::Test {
 protected:
  static EngineOptions two_at_a_time(const TinyPair& pair) {
    EngineOptions options = pair.options();
    options.max_sequences = 2;
    return options;
  }
  void TearDown() override { expect_nothing_leaked(engine_); }

  const TinyPair pair_{endless()};
  Engine engine_ = Engine::load(two_at_a_time(pair_));
  std::stop_source stop_;
};

TEST_F(BatchStops, SamplesThatHaveNotBegunDoNotBegin) {
  Request request = request_of(prompt, greedy(40));
  request.n = 3000;
  std::vector<std::int32_t> heard;
  request.callback = [&](std::int32_t sample, const Piece&) {
    heard.push_back(sample);
    if (heard.size() == 6) stop_.request_stop();
    return true;
  };
  std::size_t told = 0;
  const std::vector<Outcome> outcomes = engine_.generate(
      {&request, 1}, [&](std::size_t, Outcome&) { ++told; }, stop_.get_token());
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(error_of(outcomes[0]), "");
  EXPECT_EQ(heard.size(), 6u) << "nobody is asked again";
  ASSERT_EQ(outcomes[0].samples.size(), 3000u);
  const std::vector<TokenId> whole = engine_.generate(prompt, greedy(40)).tokens;
  for (std::size_t i = 0; i < 3000; ++i) {
    const Generation& sample = outcomes[0].samples[i];
    ASSERT_EQ(sample.finish_reason, FinishReason::cancelled) << i;
    ASSERT_EQ(sample.tokens.empty(), i >= 2) << i;
    if (i >= 2) continue;
    EXPECT_LT(sample.tokens.size(), 40u);
    if (on_cuda()) continue;  // where tokens may nearly tie
    EXPECT_TRUE(std::equal(sample.tokens.begin(), sample.tokens.end(), whole.begin()));
  }
}

// Some end by themselves in the step in which the first asks for a stop.
TEST_F(BatchStops, WhoEndsByItselfHandsItsLastPieceOn) {
  std::vector<Request> requests(3, request_of(prompt, greedy(12)));
  std::vector<std::vector<TokenId>> heard(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].options.speculation = Plain{};
    requests[i].callback = [&, i](std::int32_t, const Piece& piece) {
      heard[i].insert(heard[i].end(), piece.tokens.begin(), piece.tokens.end());
      if (i == 0 && heard[i].size() == 12) stop_.request_stop();
      return true;
    };
  }
  const std::vector<Outcome> outcomes = engine_.generate(requests, {}, stop_.get_token());
  ASSERT_TRUE(stop_.stop_requested());
  EXPECT_EQ(only(outcomes[1]).finish_reason, FinishReason::length);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (only(outcomes[i]).finish_reason == FinishReason::cancelled) continue;
    EXPECT_EQ(only(outcomes[i]).tokens, heard[i]) << i;
  }
}

TEST_F(BatchStops, WhatEndedBeforeStands) {
  std::vector<Request> requests(5, request_of(prompt, greedy(40)));
  requests[0].options.max_new_tokens = 3;
  requests[3].tokens = {-1};  // which is wrong, and says so though it never began
  requests[3].n = 0;
  std::vector<std::size_t> told;
  const std::vector<Outcome> outcomes = engine_.generate(
      requests,
      [&](std::size_t index, Outcome&) {
        told.push_back(index);
        if (index == 0) stop_.request_stop();
      },
      stop_.get_token());
  EXPECT_EQ(told, (std::vector<std::size_t>{3, 0, 1, 2, 4})) << "what is wrong is told early";
  EXPECT_EQ(only(outcomes[0]).finish_reason, FinishReason::length);
  EXPECT_EQ(only(outcomes[0]).tokens.size(), 3u);
  EXPECT_EQ(only(outcomes[1]).finish_reason, FinishReason::cancelled);
  EXPECT_FALSE(only(outcomes[1]).tokens.empty());
  EXPECT_TRUE(only(outcomes[2]).tokens.empty());
  EXPECT_NE(error_of(outcomes[3]), "");
  EXPECT_EQ(only(outcomes[4]).finish_reason, FinishReason::cancelled);
  stop_ = {};
  EXPECT_EQ(only(engine_.generate({&requests[0], 1}, {}, stop_.get_token())[0]).tokens.size(), 3u);
}

TEST_F(BatchStops, BeforeTheFirstText) {
  stop_.request_stop();
  const Request request = request_of(prompt, greedy(5));
  const std::vector<Outcome> outcomes = engine_.generate({&request, 1}, {}, stop_.get_token());
  EXPECT_EQ(only(outcomes[0]).finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(only(outcomes[0]).tokens.empty());
}

// Nobody is told of these texts until they end, which they do not by themselves: 1900 tokens, and
// an observer that asks to stop early. What is queued ends, too.
TEST_F(BatchStops, TextsWithoutCallbacks) {
  TinyModel model = endless();
  model.context_length = 2048;
  const TinyPair pair(model);
  for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{4}}) {
    Engine engine = Engine::load(two_at_a_time(pair));
    stop_ = {};
    int steps = 0;
    inside(engine).observer = [&](const StepView&) {
      if (++steps == 6) stop_.request_stop();
    };
    std::vector<Request> requests(4, request_of(prompt, greedy(1900)));
    for (Request& request : requests) request.options.speculation = speculation;
    const std::vector<Outcome> outcomes = engine.generate(requests, {}, stop_.get_token());
    EXPECT_LE(steps, 7) << "the step at hand has two texts";
    for (std::size_t i = 0; i < 4; ++i) {
      const Generation& g = only(outcomes[i]);
      EXPECT_EQ(g.finish_reason, FinishReason::cancelled);
      EXPECT_EQ(g.tokens.empty(), i >= 2) << i;
      EXPECT_LT(g.tokens.size(), 100u);
    }
    expect_nothing_leaked(engine);
  }
}

// From another thread, while a call of others has all the room: one that waits in the queue ends,
// and those go on.
TEST_F(BatchStops, WhileQueued) {
  Request queued = request_of(prompt, greedy(40));
  std::promise<void> ended;
  std::vector<Outcome> outcomes;
  std::thread other;
  std::vector<Request> others(2, request_of(prompt, greedy(60)));
  int pieces = 0;
  others[0].callback = [&](std::int32_t, const Piece&) {
    ++pieces;
    if (pieces == 1) {
      other = std::thread([&] {
        outcomes = engine_.generate({&queued, 1}, {}, stop_.get_token());
        ended.set_value();
      });
    } else if (pieces == 4) {
      stop_.request_stop();
      ended.get_future().wait();  // before these have ended
    }
    return true;
  };
  for (const Outcome& outcome : engine_.generate(others)) {
    EXPECT_EQ(only(outcome).tokens.size(), 60u);
  }
  other.join();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(only(outcomes[0]).finish_reason, FinishReason::cancelled);
}

// A prompt of many passes: the one at hand is the last.
TEST_F(BatchStops, DuringPrefill) {
  const TinyPair pair(endless(8192));
  EngineOptions load = pair.options();
  load.max_sequences = 2;
  load.max_tree_size = 8;
  Engine engine = Engine::load(load);
  const std::int32_t rows = inside(engine).target.model->options().max_rows;
  std::vector<Request> requests(2, request_of(prompt, greedy(1000)));
  requests[0].tokens = random_tokens(static_cast<std::size_t>(6 * rows), 96, 3);
  requests[1].options.speculation = Plain{};
  int steps = 0;  // of the other, beside whose roots the prompt goes on
  inside(engine).observer = [&](const StepView&) {
    if (++steps == 3) stop_.request_stop();
  };
  const std::vector<Outcome> outcomes = engine.generate(requests, {}, stop_.get_token());
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(only(outcomes[0]).finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(only(outcomes[0]).tokens.empty());
  EXPECT_EQ(only(outcomes[1]).tokens.size(), 3u);
  expect_nothing_leaked(engine);
}

// A sequence keeps what was written when all was to stop, as after a callback's false.
TEST_F(BatchStops, ASequenceKeepsItsText) {
  Sequence sequence = engine_.new_sequence();
  Request request = request_of(prompt, greedy(60));
  request.sequence = &sequence;
  request.callback = [&](std::int32_t, const Piece&) { return stop_.request_stop(); };
  const Generation g = only(engine_.generate({&request, 1}, {}, stop_.get_token())[0]);
  EXPECT_EQ(g.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(sequence.tokens().size(), prompt.size() + g.tokens.size());
  EXPECT_FALSE(g.tokens.empty());
}

}  // namespace
}  // namespace coppice::testing
