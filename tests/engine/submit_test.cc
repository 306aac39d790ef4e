// Requests that a thread of the engine's own writes, and what the engine says of its work.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/endless_pair.h"

namespace coppice::testing {
namespace {

class Submit : public ::testing::Test {
 protected:
  static EngineOptions two_at_a_time(const TinyPair& pair) {
    EngineOptions options = pair.options();
    options.max_sequences = 2;
    return options;
  }
  void TearDown() override {
    if (engine_) expect_nothing_leaked(*engine_);
  }
  static std::string message_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const TinyPair pair_{endless()};
  std::optional<Engine> engine_ = Engine::load(two_at_a_time(pair_));
};

TEST_F(Submit, WritesWhatGenerateWrites) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 7; ++i) {
    requests.push_back(request_of({1, 7, 3, static_cast<TokenId>(3 + i)}, greedy(20 + i)));
  }
  const std::vector<Generation> alone = one_by_one(*engine_, requests);
  std::vector<std::vector<TokenId>> heard(requests.size());
  std::vector<int> told(requests.size());
  std::vector<Submission> submissions;
  const std::thread::id here = std::this_thread::get_id();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].callback = [&, i](std::int32_t, const Piece& piece) {
      EXPECT_NE(std::this_thread::get_id(), here);
      heard[i].insert(heard[i].end(), piece.tokens.begin(), piece.tokens.end());
      return true;
    };
    submissions.push_back(engine_->submit(requests[i], [&, i](Outcome&) { ++told[i]; }));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Outcome outcome = submissions[i].wait();
    EXPECT_EQ(told[i], 1);
    EXPECT_TRUE(submissions[i].done());
    if (!on_cuda()) {
      EXPECT_EQ(only(outcome).tokens, alone[i].tokens) << i;
    }
    EXPECT_EQ(only(outcome).tokens, heard[i]) << i;
    EXPECT_EQ(only(outcome).finish_reason, FinishReason::length);
  }
}

TEST_F(Submit, SamplesHaveStreamsOfTheirOwn) {
  Request request = request_of(prompt, greedy(12));
  request.options.sampling.temperature = 1.0;
  request.options.acceptance = Acceptance::coupled;
  request.n = 5;
  const Outcome together = engine_->submit(request).wait();
  const Outcome expected = engine_->generate({&request, 1})[0];
  ASSERT_EQ(together.samples.size(), 5u);
  for (std::size_t i = 0; i < 5 && !on_cuda(); ++i) {
    EXPECT_EQ(together.samples[i].tokens, expected.samples[i].tokens) << i;
  }
}

TEST_F(Submit, CancelledEndsWhereItStands) {
  const std::vector<TokenId> whole = engine_->generate(prompt, greedy(60)).tokens;
  Request request = request_of(prompt, greedy(60));
  request.n = 200;
  std::promise<void> begun;
  std::atomic<bool> waits = true;
  request.callback = [&](std::int32_t, const Piece&) {
    if (waits.exchange(false)) begun.set_value();
    return true;
  };
  std::atomic<int> told = 0;
  Submission submission = engine_->submit(request, [&](Outcome&) { ++told; });
  begun.get_future().wait();
  submission.cancel();
  submission.cancel();
  const Outcome outcome = submission.wait();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(error_of(outcome), "");
  std::size_t cancelled = 0;
  for (const Generation& sample : outcome.samples) {
    cancelled += sample.finish_reason == FinishReason::cancelled;
    EXPECT_LE(sample.tokens.size(), whole.size());
    if (on_cuda()) continue;  // where tokens may nearly tie
    EXPECT_TRUE(std::equal(sample.tokens.begin(), sample.tokens.end(), whole.begin()));
  }
  EXPECT_GT(cancelled, 190u);
  EXPECT_EQ(engine_->statistics().waiting, 0);
  EXPECT_EQ(engine_->statistics().running, 0);
}

TEST_F(Submit, OneThatIsDestroyedIsHeardNoMore) {
  std::atomic<bool> alive = true;
  std::atomic<int> heard = 0, heard_late = 0;
  {
    Request request = request_of(prompt, greedy(60));
    request.n = 50;
    request.callback = [&](std::int32_t, const Piece&) {
      ++(alive ? heard : heard_late);
      return true;
    };
    const Submission submission = engine_->submit(request);
    while (heard == 0) std::this_thread::yield();
  }
  alive = false;
  static_cast<void>(engine_->submit(request_of(prompt, greedy(5))).wait());
  EXPECT_EQ(heard_late, 0);
}

TEST_F(Submit, WhatIsWrongIsSaid) {
  Request none = request_of(prompt, greedy(5));
  none.n = 0;
  EXPECT_NE(message_of([&] { static_cast<void>(engine_->submit(none)); }), "");
  const Outcome outcome = engine_->submit(request_of({-1}, greedy(5))).wait();
  EXPECT_NE(error_of(outcome).find("vocabulary"), std::string::npos) << error_of(outcome);
  Submission submission = engine_->submit(request_of(prompt, greedy(5)));
  EXPECT_EQ(only(submission.wait()).tokens.size(), 5u);
  EXPECT_NE(message_of([&] { static_cast<void>(submission.wait()); }), "");
  EXPECT_NE(message_of([] { static_cast<void>(Submission().wait()); }), "");
  const Outcome thrown = engine_
                             ->submit(request_of(prompt, greedy(5)),
                                      [](Outcome&) { throw std::runtime_error("mine"); })
                             .wait();
  EXPECT_EQ(error_of(thrown), "mine");
  EXPECT_EQ(thrown.samples.at(0).tokens.size(), 5u);
  Request throws = request_of(prompt, greedy(5));
  throws.callback = [](std::int32_t, const Piece&) -> bool { throw std::runtime_error("a piece"); };
  EXPECT_EQ(error_of(engine_->submit(throws).wait()), "a piece");
}

TEST_F(Submit, CallbacksSubmitAndCancelButDoNotWait) {
  std::promise<Outcome> last;
  std::string refused;
  Submission second, third;
  Request request = request_of(prompt, greedy(10));
  Submission first = engine_->submit(request, [&](Outcome&) {
    refused = message_of([&] { static_cast<void>(second.wait()); });
    second =
        engine_->submit(request, [&](Outcome& outcome) { last.set_value(std::move(outcome)); });
    refused = message_of([&] { static_cast<void>(second.wait()); });
    third = engine_->submit(request);
    third = {};  // cancelled, and not waited for
  });
  EXPECT_EQ(only(last.get_future().get()).tokens.size(), 10u);
  EXPECT_NE(refused.find("callback"), std::string::npos) << refused;
  static_cast<void>(first.wait());
  EXPECT_TRUE(second.wait().samples.empty()) << "its callback has moved from it";
}

TEST_F(Submit, AnEngineEndsWhatIsUnderWay) {
  Request request = request_of(prompt, greedy(60));
  request.n = 300;
  std::atomic<bool> begun = false;
  request.callback = [&](std::int32_t, const Piece&) { return begun = true; };
  std::vector<Submission> submissions;
  for (int i = 0; i < 3; ++i) submissions.push_back(engine_->submit(request));
  while (!begun) std::this_thread::yield();
  engine_.reset();
  for (Submission& submission : submissions) {
    submission.cancel();
    EXPECT_EQ(submission.wait().samples.at(299).finish_reason, FinishReason::cancelled);
  }
}

TEST_F(Submit, ASequenceGoesOn) {
  Sequence sequence = engine_->new_sequence(), expected = engine_->new_sequence();
  for (int turn = 0; turn < 3; ++turn) {
    Request request = request_of({4, 5}, greedy(6));
    request.sequence = &sequence;
    const Outcome outcome = engine_->submit(request).wait();
    static_cast<void>(expected.generate(request.tokens, request.options));
    if (!on_cuda()) {
      EXPECT_EQ(tokens_of(sequence), tokens_of(expected));
    }
    EXPECT_EQ(only(outcome).tokens.size(), 6u);
  }
}

TEST_F(Submit, StatisticsAddUp) {
  Request request = request_of(prompt, greedy(20));
  request.options.sampling.temperature = 1.0;
  request.n = 6;
  std::vector<Generation> samples = engine_->submit(request).wait().samples;
  for (int i = 0; i < 2; ++i) samples.push_back(engine_->generate(prompt, request.options));
  const EngineStatistics s = engine_->statistics();
  std::int64_t steps = 0, tokens = 0;
  double drafted = 0, accepted = 0;
  for (const Generation& each : samples) {
    const Statistics& of = each.statistics;
    steps += of.steps;
    tokens += std::ssize(each.tokens);
    drafted += of.tree_size_mean * static_cast<double>(of.steps);
    // A step's last token is the bonus; a text's last step may bring more than the text takes.
    accepted += static_cast<double>(std::ssize(each.tokens) - of.prefill_tokens - of.steps);
  }
  EXPECT_EQ(s.steps, steps);
  EXPECT_EQ(s.new_tokens, tokens);
  EXPECT_NEAR(static_cast<double>(s.drafted), drafted, 1e-6);
  EXPECT_GE(static_cast<double>(s.accepted), accepted);
  EXPECT_LT(s.passes, s.steps) << "texts share passes";
  EXPECT_GT(s.accepted, 0);
  EXPECT_EQ(std::accumulate(s.drafted_by_depth.begin(), s.drafted_by_depth.end(), std::int64_t{0}),
            s.drafted);
  EXPECT_EQ(
      std::accumulate(s.accepted_by_depth.begin(), s.accepted_by_depth.end(), std::int64_t{0}),
      s.accepted);
  EXPECT_EQ(s.running, 0);
  EXPECT_EQ(s.waiting, 0);
  EXPECT_EQ(s.cache.prompt_tokens, engine_->cache().prompt_tokens);
}

// Threads submit, cancel and destroy at random, beside calls of generate().
TEST_F(Submit, ManyThreads) {
  std::atomic<int> told = 0, submitted = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      const auto below = [&](unsigned n) { return random() % n; };
      std::vector<Submission> mine;
      for (int i = 0; i < 40; ++i) {
        Request request = request_of({1, static_cast<TokenId>(1 + below(9))},
                                     greedy(1 + static_cast<std::int32_t>(below(12))));
        request.n = 1 + static_cast<std::int32_t>(below(3));
        if (below(2) == 0) request.callback = [](std::int32_t, const Piece&) { return true; };
        ++submitted;
        mine.push_back(engine_->submit(request, [&](Outcome&) { ++told; }));
        if (below(3) == 0) mine[below(static_cast<unsigned>(mine.size()))].cancel();
        if (below(4) == 0) mine.erase(mine.begin());
        if (below(4) == 0) {
          static_cast<void>(engine_->generate(request.tokens, request.options));
        }
      }
      for (Submission& submission : mine) EXPECT_EQ(error_of(submission.wait()), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, submitted);
}

}  // namespace
}  // namespace coppice::testing
