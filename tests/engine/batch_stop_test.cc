// A call with many requests that is asked to stop.
#include <gtest/gtest.h>

#include <cstddef>
#include <stop_token>
#include <string>
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
        stop_.request_stop();
      },
      stop_.get_token());
  EXPECT_EQ(told, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
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
