// A text of a batch is what it is alone: for any number of texts, arrivals, cancellations and
// preemptions. On a CPU in f32 token for token; on a GPU up to near-ties, which are counted and
// bounded as in identity_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/lettered_pair.h"
#include "engine/near_tie.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

class BatchIdentity : public ::testing::TestWithParam<Rule> {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "candidates of a random model nearly tie in bf16";
  }
  const LetteredPair pair_;
};

INSTANTIATE_TEST_SUITE_P(Rules, BatchIdentity,
                         ::testing::Values(Rule::greedy, Rule::coupled, Rule::fixed_trees),
                         [](const auto& given) { return std::string(name_of(given.param)); });

TEST_P(BatchIdentity, OneToManyTexts) {
  Engine engine = Engine::load(pair_.options());
  std::uint32_t seed = 1;
  for (const std::size_t count : {1, 2, 3, 6, 9, 17, 48}) {
    std::vector<Request> requests = mixed_requests(count, GetParam(), ++seed, 40, true);
    // Beside those of another rule.
    const auto other = static_cast<Rule>((static_cast<int>(GetParam()) + 1) % 3);
    for (Request& request : mixed_requests(count / 3, other, seed, 40)) {
      requests.push_back(std::move(request));
    }
    const std::vector<Generation> alone = one_by_one(engine, requests);
    const std::vector<Outcome> together = engine.generate(requests);
    ASSERT_EQ(together.size(), requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "text " << i << " of " << requests.size());
      expect_equal(only(together[i]), alone[i]);
    }
    expect_nothing_leaked(engine);
  }
}

// Several threads bring lists of texts, some of which end by their callbacks.
TEST_P(BatchIdentity, ArrivalsAndCancellations) {
  EngineOptions load = pair_.options();
  load.max_sequences = 6;
  Engine engine = Engine::load(load);
  constexpr std::size_t threads = 5, lists = 6;
  std::mt19937 random(5);
  std::vector<std::vector<Request>> requests;
  std::vector<std::vector<Generation>> alone;
  std::vector<std::vector<std::size_t>> cancel_at;  // tokens
  for (std::size_t list = 0; list < threads * lists; ++list) {
    requests.push_back(mixed_requests(1 + random() % 5, GetParam(), random()));
    alone.push_back(one_by_one(engine, requests.back()));
    cancel_at.emplace_back();
    for (std::size_t i = 0; i < requests.back().size(); ++i) {
      cancel_at.back().push_back(random() % 2 == 0 ? 1 + random() % 20 : 1000);
    }
  }
  std::atomic<int> cancelled = 0;
  const auto write = [&](std::size_t list) {
    std::vector<Request> mine = requests[list];
    std::vector<std::size_t> seen(mine.size(), 0);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i].callback = [&, i](std::int32_t, const Piece& piece) {
        EXPECT_LT(seen[i], cancel_at[list][i]) << "called after it said false";
        seen[i] += piece.tokens.size();
        return seen[i] < cancel_at[list][i];
      };
    }
    const std::vector<Outcome> outcomes = engine.generate(mine);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const Generation& g = only(outcomes[i]);
      const Generation& whole = alone[list][i];
      if (g.finish_reason == FinishReason::cancelled) {
        ++cancelled;
        EXPECT_GE(g.tokens.size(), cancel_at[list][i]);
        ASSERT_LE(g.tokens.size(), whole.tokens.size());
        EXPECT_TRUE(std::equal(g.tokens.begin(), g.tokens.end(), whole.tokens.begin()));
      } else {
        expect_equal(g, whole);
      }
    }
  };
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (std::size_t list = t; list < threads * lists; list += threads) write(list);
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_GT(cancelled, 10);
  expect_nothing_leaked(engine);
}

// Trees shrink where memory is short: under rejection another text of the same law comes.
class BatchMemory : public BatchIdentity {};

INSTANTIATE_TEST_SUITE_P(Rules, BatchMemory, ::testing::Values(Rule::greedy, Rule::coupled),
                         [](const auto& given) { return std::string(name_of(given.param)); });

// All fit the KV memory alone, four or so side by side.
TEST_P(BatchMemory, TooLittleForAll) {
  EngineOptions load = pair_.options();
  load.max_tree_size = 32;
  load.kv_tokens = 128;
  Engine engine = Engine::load(load);
  const std::vector<Request> requests = mixed_requests(24, GetParam(), 9, 80);
  const std::vector<Generation> alone = one_by_one(engine, requests);
  std::int32_t preemptions = 0;
  const std::vector<Outcome> together = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "text " << i);
    expect_equal(only(together[i]), alone[i]);
    preemptions += only(together[i]).statistics.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  expect_nothing_leaked(engine);
}

// What ends for lack of memory alone ends at the same token here.
TEST_P(BatchMemory, TooLittleForOne) {
  EngineOptions load = pair_.options();
  load.max_tree_size = 16;
  load.kv_tokens = 96;
  Engine engine = Engine::load(load);
  std::vector<Request> requests = mixed_requests(10, GetParam(), 17, 60);
  requests[1].options.max_new_tokens = requests[6].options.max_new_tokens = 200;
  requests[1].options.ignore_eos = requests[6].options.ignore_eos = true;
  requests[4].tokens = random_tokens(90, 96, 3);
  requests[4].options = requests[1].options;
  const std::vector<Generation> alone = one_by_one(engine, requests);
  for (const std::size_t i : {1, 4, 6}) EXPECT_EQ(alone[i].finish_reason, FinishReason::memory);
  const std::vector<Outcome> together = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "text " << i);
    expect_equal(only(together[i]), alone[i]);
  }
  expect_nothing_leaked(engine);
}

struct ShippedCase {
  Rule rule;
  bool scarce;  ///< too little memory for all, and several threads that call
};

class ShippedBatch : public ::testing::TestWithParam<ShippedCase> {};

INSTANTIATE_TEST_SUITE_P(Rules, ShippedBatch,
                         ::testing::Values(ShippedCase{Rule::greedy, false},
                                           ShippedCase{Rule::coupled, true}),
                         [](const auto& given) { return std::string(name_of(given.param.rule)); });

// Request i is thread i % count's.
std::vector<Outcome> by_threads(Engine& engine, const std::vector<Request>& requests,
                                std::size_t count) {
  std::vector<Outcome> outcomes(requests.size());
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < count; ++t) {
    all.emplace_back([&, t] {
      std::vector<Request> mine;
      for (std::size_t i = t; i < requests.size(); i += count) mine.push_back(requests[i]);
      std::vector<Outcome> of_mine = engine.generate(mine);
      for (std::size_t i = 0; i < of_mine.size(); ++i) {
        outcomes[t + i * count] = std::move(of_mine[i]);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return outcomes;
}

// Against plain decoding of each text alone.
TEST_P(ShippedBatch, IsWhatPlainDecodingGivesAlone) {
  const bool coupled = GetParam().rule == Rule::coupled, scarce = GetParam().scarce;
  constexpr std::size_t most = sanitized ? 3 : 8;
  const std::size_t count = on_cuda() ? 64 : most;
  const std::int32_t new_tokens = on_cuda() ? 48 : 20;
  EngineOptions load = shipped_options();
  load.kv_tokens = !scarce ? 8192 : on_cuda() ? 1536 : 192;
  load.max_tree_size = 32;
  Engine engine = Engine::load(load);
  const auto all = prompts();
  std::vector<Request> plain, requests;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateOptions options;
    options.max_new_tokens = new_tokens;
    options.sampling.temperature = coupled ? 0.8 : 0.0;
    options.acceptance = coupled ? Acceptance::coupled : Acceptance::rejection;
    options.ignore_eos = true;
    options.logprobs = true;
    options.seed = 11;
    options.stream = i;
    options.speculation = Plain{};
    plain.push_back(request_of(engine.tokenize(all[i * all.size() / count]), options));
    requests.push_back(plain.back());
    requests.back().options.speculation = speculation_of(GetParam().rule, i);
  }
  const std::vector<Generation> alone = one_by_one(engine, plain);
  std::vector<std::size_t> done(count, 0);  // plain tokens that were reached
  std::int64_t flips = 0, preemptions = 0;
  double largest_gap = 0.0;
  std::vector<std::size_t> left(count);
  for (std::size_t i = 0; i < count; ++i) left[i] = i;
  while (!left.empty()) {
    std::vector<Request> now;
    for (const std::size_t i : left) now.push_back(requests[i]);
    const std::vector<Outcome> together = by_threads(engine, now, scarce ? 4 : 1);
    std::vector<std::size_t> flipped;
    for (std::size_t k = 0; k < left.size(); ++k) {
      const std::size_t i = left[k];
      const Generation& fast = only(together[k]);
      preemptions += fast.statistics.preemptions;
      const std::vector<TokenId>& expected = alone[i].tokens;
      std::size_t same = 0;
      while (same < fast.tokens.size() && fast.tokens[same] == expected[done[i] + same]) ++same;
      const std::size_t at = done[i] + same;
      if (at == expected.size()) continue;
      ASSERT_LT(same, fast.tokens.size()) << "text " << i << " ended early";
      const TokenLogprob& mine = alone[i].logprobs[at];
      const TokenLogprob& other = fast.logprobs[same];
      const double gap = near_tie(requests[i].options, requests[i].tokens.size() + same,
                                  engine.vocab_size(), mine, other);
      largest_gap = std::max(largest_gap, gap);
      EXPECT_LT(gap, largest_near_tie(requests[i].options))
          << "text " << i << ", token " << at << ": " << other.token << " instead of "
          << mine.token;
      ++flips;
      // On from the plain text.
      requests[i].tokens.insert(requests[i].tokens.end(),
                                expected.begin() + static_cast<std::ptrdiff_t>(done[i]),
                                expected.begin() + static_cast<std::ptrdiff_t>(at + 1));
      done[i] = at + 1;
      requests[i].options.max_new_tokens = static_cast<std::int32_t>(expected.size() - done[i]);
      if (done[i] < expected.size()) flipped.push_back(i);
    }
    left = flipped;
  }
  const auto tokens = static_cast<std::int64_t>(count) * new_tokens;
  std::cout << tokens << " tokens of " << count << " texts, " << flips << " near-ties, largest gap "
            << largest_gap << ", " << preemptions << " preemptions\n";
  if (on_cuda()) {
    EXPECT_EQ(preemptions > 0, scarce);  // on a CPU BatchMemory has them
  }
  EXPECT_LE(flips, most_near_ties(tokens));
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
