// Eight threads that use one engine at the same time in every way. It is for the thread sanitizer
// as much as for what it asserts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/batch_requests.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

constexpr std::size_t threads = 8;
constexpr int rounds = sanitized ? 4 : 12;

TEST(BatchThreads, EightAtOnce) {
  const TinyPair pair;
  EngineOptions load = pair.options();
  load.kv_tokens = 320;  // all sequences and one text; some are preempted, at slow callbacks too
  load.max_sequences = 12;
  load.max_tree_size = 24;
  Engine engine = Engine::load(load);
  // Whole texts by thread and round, alone.
  std::vector<std::vector<Request>> requests;
  std::vector<std::vector<Generation>> alone;
  for (std::size_t i = 0; i < threads * rounds; ++i) {
    requests.push_back(mixed_requests(3, i % 2 == 0 ? Rule::greedy : Rule::coupled,
                                      100 + static_cast<std::uint32_t>(i), 36));
    alone.push_back(one_by_one(engine, requests.back()));
  }
  const auto expect_alone = [&](const Generation& mine, const Generation& other) {
    if (!on_cuda()) expect_equal(mine, other);
  };
  // Handed from thread to thread.
  std::mutex mutex;
  std::optional<Sequence> common = engine.new_sequence();
  std::atomic<int> refused = 0;
  const auto live = [&](std::size_t thread) {
    for (int round = 0; round < rounds; ++round) {
      const std::size_t i = thread * rounds + static_cast<std::size_t>(round);
      std::vector<Request> mine = requests[i];
      switch ((thread + static_cast<std::size_t>(round)) % 5) {
        case 0:  // one call after another
          for (std::size_t k = 0; k < mine.size(); ++k) {
            expect_alone(engine.generate(mine[k].tokens, mine[k].options), alone[i][k]);
          }
          break;
        case 1: {  // sequences that die on this thread while others write
          for (std::size_t k = 0; k < mine.size(); ++k) {
            // They hold memory that nobody else can take.
            auto& most = mine[k].options.max_new_tokens;
            most = std::min(most, 3);
            Sequence sequence = engine.new_sequence();
            const std::vector<TokenId> tokens =
                sequence.generate(mine[k].tokens, mine[k].options).tokens;
            EXPECT_LE(tokens.size(), 3u);
            if (!on_cuda()) {
              EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), alone[i][k].tokens.begin()));
            }
          }
          break;
        }
        case 2: {  // a sequence of several threads
          const std::lock_guard lock(mutex);
          if (common->tokens().size() > 40) common = engine.new_sequence();
          mine[0].sequence = &*common;
          mine[0].options.max_new_tokens = 3;
          const std::vector<Outcome> outcomes = engine.generate(mine);
          EXPECT_LE(only(outcomes[0]).tokens.size(), 3u);
          expect_alone(only(outcomes[2]), alone[i][2]);
          break;
        }
        case 3: {  // failures, a cancellation
          mine[1].callback = [](std::int32_t, const Piece&) -> bool {
            throw std::runtime_error("mine");
          };
          mine[0].callback = [](std::int32_t, const Piece&) { return false; };
          const std::vector<Outcome> outcomes = engine.generate(mine);
          EXPECT_EQ(error_of(outcomes[1]), "mine");
          refused += error_of(outcomes[1]).empty() ? 0 : 1;
          expect_alone(only(outcomes[2]), alone[i][2]);
          break;
        }
        default: {
          mine[static_cast<std::size_t>(round % 3)].callback = [](std::int32_t, const Piece&) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
            return true;
          };
          const std::vector<Outcome> outcomes = engine.generate(mine);
          for (std::size_t k = 0; k < mine.size(); ++k) {
            expect_alone(only(outcomes[k]), alone[i][k]);
          }
        }
      }
    }
  };
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) all.emplace_back(live, t);
  for (std::thread& thread : all) thread.join();
  EXPECT_GT(refused, 0);
  common.reset();
  expect_nothing_leaked(engine);
}

// Texts that share are begun, forked, taken back, pinned and evicted by all of them.
TEST(BatchThreads, EightThatShare) {
  const TinyPair pair;
  EngineOptions load = pair.options();
  load.kv_tokens = 1536;  // eight prefixes beside the texts
  load.max_tree_size = 16;
  Engine engine = Engine::load(load);
  load.kv_tokens = 4096;
  load.prefix_cache = false;
  Engine without = Engine::load(load);
  const std::vector<TokenId> all = random_tokens(70, 96, 1);
  const auto text_of = [&](Engine& on, std::size_t thread, int round) {
    GenerateOptions options;
    options.max_new_tokens = 10;
    options.ignore_eos = true;
    options.speculation = &on == &engine ? Speculation(Dyspec{4}) : Speculation(Plain{});
    const auto token = static_cast<TokenId>(3 + (thread + static_cast<std::size_t>(round)) % 5);
    const Prefix prefix = on.prefix(all);
    Sequence trunk = prefix.begin();
    trunk.generate(std::vector<TokenId>{token, 7}, options);
    Sequence branch = trunk.fork();
    branch.rewind(75);
    if (round % 3 == 0) on.drop_cache();
    std::vector<Request> requests(2);
    for (Request& request : requests) {
      request.tokens = {token, 9};
      request.options = options;
    }
    requests[0].sequence = &trunk;
    requests[1].sequence = &branch;
    std::vector<TokenId> written;
    for (const Outcome& outcome : on.generate(requests)) {
      const std::vector<TokenId>& tokens = only(outcome).tokens;
      written.insert(written.end(), tokens.begin(), tokens.end());
    }
    return written;
  };
  std::vector<std::vector<TokenId>> together(threads * rounds);
  std::vector<std::thread> writers;
  for (std::size_t t = 0; t < threads; ++t) {
    writers.emplace_back([&, t] {
      for (int round = 0; round < rounds; ++round) {
        together[t * rounds + static_cast<std::size_t>(round)] = text_of(engine, t, round);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (std::size_t t = 0; t < threads; ++t) {
    for (int round = 0; round < rounds; ++round) {
      const std::vector<TokenId>& mine = together[t * rounds + static_cast<std::size_t>(round)];
      EXPECT_EQ(mine.size(), 20u);
      if (!on_cuda()) {
        EXPECT_EQ(mine, text_of(without, t, round)) << "thread " << t << ", round " << round;
      }
    }
  }
  expect_nothing_leaked(engine);
}

// Costs are measured by the first call of an automatic size, of which there are several.
TEST(BatchThreads, FirstCallsMeasureCosts) {
  const TinyPair pair;
  Engine engine = Engine::load(pair.options());
  std::vector<Request> requests = mixed_requests(threads, Rule::greedy, 5, 30);
  for (Request& request : requests) request.options.speculation = Dyspec{};
  std::vector<Generation> together(threads);
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back(
        [&, t] { together[t] = engine.generate(requests[t].tokens, requests[t].options); });
  }
  for (std::thread& thread : all) thread.join();
  const std::vector<Generation> alone = one_by_one(engine, requests);
  for (std::size_t t = 0; t < threads; ++t) {
    if (!on_cuda()) expect_equal(together[t], alone[t]);
    EXPECT_FALSE(together[t].tokens.empty() && !alone[t].tokens.empty());
  }
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
