// That texts share passes, who has which share of a step, and what the comparison with each text
// alone must notice of a pass that several texts share.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/access.h"
#include "engine/batch_requests.h"
#include "engine/endless_pair.h"
#include "planted/planted.h"
#include "reference/pass_faults.h"

namespace coppice::testing {
namespace {

// `count` texts that end by their lengths, all of one size.
std::vector<Request> like_texts(std::size_t count, const Speculation& speculation,
                                std::int32_t tokens) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(
        request_of(random_tokens(4 + i, 96, 70 + static_cast<unsigned>(i)), greedy(tokens)));
    requests.back().options.speculation = speculation;
  }
  return requests;
}

// Prompts that are alike but for their last three tokens.
void begin_alike(std::vector<Request>& requests, const std::vector<TokenId>& beginning) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<TokenId> own = random_tokens(3, 96, static_cast<unsigned>(i));
    requests[i].tokens = beginning;
    requests[i].tokens.insert(requests[i].tokens.end(), own.begin(), own.end());
  }
}

TEST(BatchShares, EveryPass) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  int passes = 0, verdicts = 0;
  inside(engine).observer = [&](const StepView& view) {
    ++verdicts;
    if (view.target.first_logits() == 0) ++passes;
  };
  for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{5}}) {
    passes = verdicts = 0;
    const std::vector<Request> requests = like_texts(8, speculation, 24);
    for (const Outcome& outcome : engine.generate(requests)) {
      const Statistics& s = only(outcome).statistics;
      EXPECT_GT(s.batch_mean, std::holds_alternative<Plain>(speculation) ? 7.0 : 3.0);
      EXPECT_LE(s.batch_mean, 8.0);
      EXPECT_EQ(s.preemptions, 0);
      EXPECT_GE(s.queue_seconds, 0.0);
      EXPECT_NEAR(24.0 - s.prefill_tokens, s.emitted_per_step * static_cast<double>(s.steps), 1e-9);
      const Seconds& t = s.seconds;
      EXPECT_NEAR(t.load + t.prefill + t.draft + t.verify + t.sampling + t.other + s.queue_seconds,
                  t.total, 1e-6);
      for (const double part : {t.prefill, t.draft, t.verify, t.sampling, t.other}) {
        EXPECT_GE(part, 0.0);
      }
    }
    EXPECT_LT(passes, std::holds_alternative<Plain>(speculation) ? 30 : verdicts / 3);
  }
  inside(engine).observer = {};
  const std::vector<Request> one = like_texts(1, Dyspec{5}, 24);
  EXPECT_EQ(only(engine.generate(one)[0]).statistics.batch_mean, 1.0);
}

// Calls from several threads share passes, too. The first one's steps take their time until one is
// shared.
TEST(BatchShares, PassesOfSeveralCalls) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  const std::vector<Request> requests = like_texts(4, Plain{}, 200);
  std::atomic<int> callers = 0;
  bool shared = false;  // observed under the engine's lock
  inside(engine).observer = [&](const StepView& view) {
    shared = shared || view.target.first_logits() > 0;
    while (callers < 4) std::this_thread::yield();
    if (!shared) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  std::vector<std::thread> threads;
  for (const Request& request : requests) {
    threads.emplace_back([&] {
      ++callers;
      EXPECT_EQ(engine.generate(request.tokens, request.options).tokens.size(), 200u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(shared);
  expect_nothing_leaked(engine);
}

TEST(BatchShares, MoreTextsThanMayRunWait) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.max_sequences = 2;
  Engine engine = Engine::load(load);
  const std::vector<Outcome> outcomes = engine.generate(like_texts(7, Dyspec{4}, 20));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(only(outcome).tokens.size(), 20u);
    EXPECT_LE(only(outcome).statistics.batch_mean, 2.0);
  }
  // The last one waits for most of the others: that is not its decoding.
  const Statistics& last = only(outcomes.back()).statistics;
  const Seconds& of = last.seconds;
  EXPECT_GT(last.queue_seconds, last.decode_seconds());
  EXPECT_NEAR(of.draft + of.verify + of.sampling + of.other, last.decode_seconds(), 1e-6);
  EXPECT_NEAR(last.decode_tokens_per_second * last.decode_seconds(), 20 - last.prefill_tokens,
              1e-6);
  expect_nothing_leaked(engine);
}

TEST(BatchShares, EndsAreToldAsTheyCome) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  std::vector<Request> requests = like_texts(4, Plain{}, 60);
  requests[1].options.max_new_tokens = 3;
  requests[3].options.max_new_tokens = 30;
  requests[2].n = 0;
  std::vector<std::size_t> told;
  engine.generate(requests, [&](std::size_t index, Outcome&) { told.push_back(index); });
  EXPECT_EQ(told, (std::vector<std::size_t>{2, 1, 3, 0}));
}

// A prompt of many passes takes them beside the steps of others.
TEST(BatchShares, ALongPromptHoldsNobodyUp) {
  const TinyPair pair(endless(8192));
  EngineOptions load = pair.options();
  load.kv_tokens = 8192;
  load.max_tree_size = 8;
  Engine engine = Engine::load(load);
  const std::int32_t passes = 5,
                     prompt_tokens = passes * inside(engine).target.model->options().max_rows;
  ASSERT_LT(prompt_tokens, 8000);
  std::vector<Request> requests = like_texts(2, Plain{}, 200);
  requests[1].tokens = random_tokens(static_cast<std::size_t>(prompt_tokens), 96, 3);
  requests[1].options.max_new_tokens = 2;
  int pieces = 0, before_the_long = -1;
  std::vector<Outcome> of_long;
  requests[0].callback = [&](std::int32_t, const Piece&) {
    ++pieces;
    return true;
  };
  requests[1].callback = [&](std::int32_t, const Piece&) {
    if (before_the_long < 0) before_the_long = pieces;
    return true;
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  EXPECT_EQ(only(outcomes[0]).tokens.size(), 200u);
  EXPECT_EQ(only(outcomes[1]).tokens.size(), 2u);
  EXPECT_GE(before_the_long, passes) << "a token a pass";
}

// The memory is full, and few tokens that all texts share are listed for each of them. A pass sees
// that much.
TEST(BatchShares, APassSeesWhatTheMemoryHolds) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 640;
  load.max_tree_size = 16;
  load.max_batch_rows = 128;
  std::vector<Request> requests = like_texts(24, Dyspec{4}, 20);
  begin_alike(requests, random_tokens(60, 96, 2));
  Engine engine = Engine::load(load);
  engine.generate(requests[0].tokens, requests[0].options);
  for (const Outcome& outcome : engine.generate(requests)) {
    EXPECT_EQ(only(outcome).tokens.size(), 20u);
    EXPECT_GT(only(outcome).statistics.batch_mean, 15.0);
  }
  expect_nothing_leaked(engine);
}

// Prompts of texts that were kept at many places: nodes of few tokens each, which all go through.
TEST(BatchShares, NodesOfFewTokens) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 512;
  Engine engine = Engine::load(load);
  const std::vector<TokenId> prompt = random_tokens(200, 96, 2);
  std::vector<Prefix> kept;
  for (std::size_t end = 30; end < prompt.size(); end += 30) {
    kept.push_back(engine.prefix(std::span(prompt).first(end)));
  }
  const Prefix all = engine.prefix(prompt);
  std::vector<Request> requests = like_texts(8, Plain{}, 12);
  begin_alike(requests, prompt);
  for (const Outcome& outcome : engine.generate(requests)) {
    EXPECT_GT(only(outcome).statistics.batch_mean, 7.0);
  }
}

// Text by text a pass sees what texts share for each of them, so that they go on in several.
TEST(BatchShares, TextByTextAPassSeesNoMoreThanItMay) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 448;
  load.max_tree_size = 16;
  load.max_sequences = 8;
  std::vector<Request> requests = like_texts(8, Dyspec{4}, 20);
  begin_alike(requests, random_tokens(200, 96, 2));
  for (const Fault fault : {Fault::none, Fault::copies_counted_once}) {
    Engine engine = Engine::load(load);
    EngineAccess(engine).read_by_text(true);
    ASSERT_LT(inside(engine).target.model->options().max_kv_tokens, 8 * 200);
    engine.generate(requests[0].tokens, requests[0].options);
    const Planted planted(fault);
    for (const Outcome& outcome : engine.generate(requests)) {
      EXPECT_EQ(only(outcome).tokens.size(), 20u);
      // A pass that sees too much is refused, and its texts take the step one by one.
      const double together = only(outcome).statistics.batch_mean;
      if (fault == Fault::none) {
        EXPECT_GT(together, 2.0);
      } else {
        EXPECT_LT(together, 1.5);
      }
    }
    expect_nothing_leaked(engine);
  }
}

// More branches than memory has room for to go on side by side. Whoever is let in takes part in a
// step before it is preempted again, however many they are.
TEST(BatchShares, ManyBranchesInLittleMemory) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 720;
  load.max_sequences = 150;
  Engine engine = Engine::load(load);
  const Prefix prompt = engine.prefix(random_tokens(100, 96, 2));
  std::vector<Sequence> branches;
  std::vector<Request> requests = like_texts(150, Plain{}, 10);
  for (std::size_t i = 0; i < requests.size(); ++i) branches.push_back(prompt.begin());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].tokens.clear();
    requests[i].sequence = &branches[i];
    requests[i].options.sampling.temperature = 1.0;
    requests[i].options.stream = i;
  }
  for (const Outcome& outcome : engine.generate(requests)) {
    EXPECT_EQ(only(outcome).tokens.size(), 10u);
    EXPECT_GT(only(outcome).statistics.batch_mean, 5.0);
  }
}

// A text at its callback holds KV that others need: it is they who go on.
TEST(BatchShares, ASlowCallbackMayHoldMemory) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 128;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  std::vector<Request> texts = like_texts(2, Dyspec{4}, 100);
  const std::vector<Generation> alone = one_by_one(engine, texts);
  std::promise<void> slow_is_in, other_is_done;
  const std::shared_future<void> done = other_is_done.get_future().share();
  int seen = 0;
  texts[0].callback = [&](std::int32_t, const Piece& piece) {
    const bool was_early = seen < 60;
    seen += static_cast<int>(piece.tokens.size());
    if (was_early && seen >= 60) {
      slow_is_in.set_value();
      done.wait();
    }
    return true;
  };
  Outcome slow;
  std::thread thread([&] { slow = std::move(engine.generate({&texts[0], 1})[0]); });
  slow_is_in.get_future().wait();
  const Generation other = engine.generate(texts[1].tokens, texts[1].options);
  other_is_done.set_value();
  thread.join();
  EXPECT_EQ(other.finish_reason, FinishReason::length);
  EXPECT_LE(other.statistics.preemptions, 1);
  if (!on_cuda()) {
    expect_equal(other, alone[1]);
    expect_equal(only(slow), alone[0]);
  }
  expect_nothing_leaked(engine);
}

// What a sequence in the queue left in earlier calls is evicted for those who run, and computed
// again.
TEST(BatchShares, WhoWaitsInTheQueueHoldsNoMemory) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 128;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  std::vector<Request> texts = like_texts(2, Dyspec{4}, 60);
  texts[0].tokens.assign(50, 7);
  texts[1].options.max_new_tokens = 20;
  const auto write = [&](std::span<const std::size_t> together) {
    Sequence sequence = engine.new_sequence();
    EXPECT_EQ(sequence.generate(texts[1].tokens, texts[1].options).tokens.size(), 20u);
    EXPECT_EQ(sequence.generate(texts[1].tokens, texts[1].options).tokens.size(), 20u);
    std::vector<Request> requests;
    for (const std::size_t t : together) requests.push_back(texts[t]);
    requests.back().sequence = &sequence;
    return engine.generate(requests);
  };
  constexpr std::size_t both[] = {0, 1}, second[] = {1};
  const Generation first_alone = engine.generate(texts[0].tokens, texts[0].options);
  const std::vector<Outcome> together = write(both), alone = write(second);
  EXPECT_EQ(only(together[0]).finish_reason, FinishReason::length);
  EXPECT_EQ(only(together[1]).finish_reason, FinishReason::length);
  EXPECT_EQ(only(together[1]).statistics.preemptions, 0);
  if (!on_cuda()) {
    expect_equal(only(together[0]), first_alone);
    expect_equal(only(together[1]), only(alone[0]));
  }
  expect_nothing_leaked(engine);
}

// A callback whose copies in the engine wait, when they are destroyed, until they may: its text has
// ended, and has not given its memory back yet.
struct LingersOnce {
  std::shared_future<void> may_go;
  std::shared_ptr<std::promise<void>> lingers = std::make_shared<std::promise<void>>();
  bool copied = false;

  explicit LingersOnce(std::shared_future<void> until) : may_go(std::move(until)) {}
  LingersOnce(const LingersOnce& other)
      : may_go(other.may_go), lingers(other.lingers), copied(true) {}
  LingersOnce(LingersOnce&& other) = default;
  ~LingersOnce() {
    if (!copied || !lingers || !called) return;
    lingers->set_value();
    may_go.wait();
  }
  bool operator()(const Piece&) {
    called = true;
    return true;
  }
  bool called = false;
};

// Others need not wait for that.
TEST(BatchShares, MemoryOfATextThatHasEndedIsTaken) {
  const TinyPair pair(endless());
  EngineOptions load = pair.options();
  load.kv_tokens = 96;
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  const std::vector<Request> texts = like_texts(2, Plain{}, 60);
  std::promise<void> go;
  const LingersOnce lingering(go.get_future().share());
  std::thread first([&] { engine.generate(texts[0].tokens, texts[0].options, lingering); });
  lingering.lingers->get_future().wait();
  // There are free slots for half of this one.
  const Generation g = engine.generate(texts[1].tokens, texts[1].options);
  go.set_value();
  first.join();
  EXPECT_EQ(g.finish_reason, FinishReason::length);
  EXPECT_EQ(g.tokens.size(), 60u);
  expect_nothing_leaked(engine);
}

// An observer sees one text at a time. What it throws ends that one.
TEST(BatchShares, AnObserverThatThrowsEndsOneText) {
  const TinyPair pair(endless());
  Engine engine = Engine::load(pair.options());
  std::vector<Request> requests = like_texts(4, Dyspec{4}, 20);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].options.stream = i;
  inside(engine).observer = [](const StepView& view) {
    if (view.key.sequence == 2 && view.key.step == 2) throw std::runtime_error("observer's own");
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 2) {
      EXPECT_EQ(error_of(outcomes[i]), "observer's own");
    } else {
      EXPECT_EQ(only(outcomes[i]).tokens.size(), 20u);
    }
  }
  expect_nothing_leaked(engine);
}

// On the host: a root without an accepted child is followed by the next tree's.
class WalksOn final : public Verifier {
 public:
  std::string name() const override { return "walks on"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    rule_->judge(tree, target, draft, key, verdict);
    const TokenId own = verdict.bonus;
    if (verdict.path.empty() && last_tree_ != nullptr && last_tree_ != &tree) {
      verdict.bonus = last_bonus_;
    }
    last_tree_ = &tree;
    last_bonus_ = own;
  }

 private:
  const std::unique_ptr<Verifier> rule_ = make_greedy_verifier();
  const TokenTree* last_tree_ = nullptr;
  TokenId last_bonus_ = -1;
};

// What batch_identity_test.cc must notice; on a GPU batch_law_test.cc does.
TEST(BatchPlanted, WhatATextTakesFromItsNeighbourIsNoticed) {
  if (on_cuda()) GTEST_SKIP() << "texts are not compared token for token there";
  const TinyPair pair;
  Engine engine = Engine::load(pair.options());
  EngineAccess access(engine);
  const std::vector<Request> requests = mixed_requests(8, Rule::greedy, 21);
  const std::vector<Generation> alone = one_by_one(engine, requests);
  const auto differing = [&] {
    const std::vector<Outcome> together = engine.generate(requests);
    int count = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      count += only(together[i]).tokens == alone[i].tokens ? 0 : 1;
    }
    return count;
  };
  EXPECT_EQ(differing(), 0);
  for (const PassFault fault : {PassFault::seen_by_neighbour, PassFault::slots_of_neighbour,
                                PassFault::position_of_neighbour, PassFault::logits_of_neighbour}) {
    access.change_passes(faulty_passes(fault));
    EXPECT_GT(differing(), 0) << static_cast<int>(fault);
  }
  access.change_passes({});
  access.judge_by([] { return std::make_unique<WalksOn>(); });
  EXPECT_GT(differing(), 0) << "a verdict that walks into the next tree";
  access.judge_by([] { return make_greedy_verifier(); });
  EXPECT_EQ(differing(), 0);
}

}  // namespace
}  // namespace coppice::testing
