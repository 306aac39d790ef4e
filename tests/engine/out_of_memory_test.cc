// The host's memory runs out at any allocation of a generation: one error, the sequence as it was,
// and no KV slot lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host_memory.h"
#include "drafting/answer_index.h"
#include "drafting/lookup.h"
#include "engine/failing_allocation.h"
#include "engine/lettered_pair.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

TEST(OutOfMemory, LosesNeitherSlotsNorTheSequence) {
  TinyModel shape;
  shape.eos_tokens = {};
  const TinyPair pair(shape, 0.2);
  EngineOptions loaded = pair.options();
  loaded.max_tree_size = 32;
  int failed = 0, succeeded = 0;
  for (const Speculation& speculation :
       std::vector<Speculation>{Plain{}, Dyspec{6}, Chain{6}, ExpandRerank{6}}) {
    std::optional<Engine> engine;
    for (long last = 0; last < 240; ++last) {
      // Scratch memory that is there already hides failures.
      if (last % 20 == 0) engine.emplace(Engine::load(loaded));
      GenerateOptions options;
      options.speculation = speculation;
      options.max_new_tokens = 8;
      options.sampling.temperature = 0.7;
      options.acceptance = Acceptance::coupled;
      options.logprobs = last % 2 == 1;
      std::vector<TokenId> prompt;
      for (long i = 0; i < 40; ++i) prompt.push_back(static_cast<TokenId>((i * 7 + last) % 96));
      Sequence sequence = engine->new_sequence();
      if (last % 3 == 0) sequence.generate(std::vector<TokenId>{1, 2}, options);
      const std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
      allocations_left = last;
      try {
        sequence.generate(prompt, options);
        allocations_left = -1;
        ++succeeded;
      } catch (const std::exception&) {
        allocations_left = -1;
        ++failed;
        ASSERT_TRUE(std::equal(before.begin(), before.end(), sequence.tokens().begin(),
                               sequence.tokens().end()))
            << name_of(speculation) << ", allocation " << last;
      }
      { const Sequence ends = std::move(sequence); }
      expect_nothing_leaked(*engine);
      ASSERT_FALSE(::testing::Test::HasFailure())
          << name_of(speculation) << ", allocation " << last;
    }
  }
  EXPECT_GT(failed, 150);
  EXPECT_GT(succeeded, 0);
}

// Each call of the library: what leaves it is an Error that says so, or nothing at all.
TEST(OutOfMemory, LeavesEveryCallAsAnError) {
  TinyModel shape;
  shape.eos_tokens = {};
  const LetteredPair pair(shape, 0.2);
  EngineOptions loaded = pair.options();
  loaded.max_tree_size = 8;
  loaded.kv_tokens = 256;
  std::optional<Engine> engine = Engine::load(loaded);
  const std::vector<TokenId> prompt(20, 3);
  GenerateOptions options;
  options.max_new_tokens = 3;
  options.speculation = Dyspec{3};
  options.acceptance = Acceptance::coupled;
  std::vector<Request> requests(2);
  for (Request& request : requests) {
    request.tokens = {4, 5, 6};
    request.options = options;
  }
  const std::vector<TokenId> some(200, 40);
  const std::filesystem::path shape_file = pair.path() / "tree.json";
  write_file(
      shape_file,
      R"({"paths": [[0], [1], [0, 0]], "acceptance": [0.5, 0.2], "size": 3, "depth": 2, "expected_length": 1.95})");
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"load", [&] { engine.emplace(Engine::load(loaded)); }},
      {"generate text", [&] { engine->generate("a long enough text", options); }},
      {"generate", [&] { engine->generate(prompt, options); }},
      {"batch",
       [&] {
         for (const Outcome& outcome : engine->generate(requests)) {
           if (outcome.error) std::rethrow_exception(outcome.error);
         }
       }},
      {"tokenize", [&] { engine->tokenize("a long enough text for an allocation or two"); }},
      {"detokenize", [&] { engine->detokenize(some); }},
      {"prefix", [&] { engine->prefix(prompt); }},
      {"prefix text", [&] { engine->prefix("a long enough text").begin(); }},
      {"sequence",
       [&] {
         Sequence sequence = engine->new_sequence();
         sequence.generate("a long enough text", options);
         sequence.fork().rewind(2);
       }},
      {"constraints",
       [&] {
         Constraint::json(*engine);
         Constraint::json_schema(*engine, R"({"type": "object", "maxProperties": 3})");
         Constraint::regex(*engine, "[a-z]{3,9}|.*b");
         Constraint::choice(*engine, std::vector<std::string>{"one of them", "another one"});
         Constraint::grammar(*engine, "root ::= \"a\" [b-z]* root?");
       }},
      {"trees",
       [&] {
         read_static_tree(shape_file);
         read_sequoia_tree(shape_file);
       }},
      {"statistics", [&] { engine->statistics(); }},
      {"judge_tree", [&] { engine->judge_tree("a long enough text", options); }}};
  for (const auto& [name, call] : calls) {
    int failed = 0;
    bool spared = false;
    // One allocation fails, or all from it on, so that there is no memory for words either.
    for (long last = 0; !spared; last += later_ones_fail ? 1 + last / 40 : 0) {
      later_ones_fail = !later_ones_fail;
      engine->drop_cache();
      // While models load, libstdc++ 12 joins paths, and crashes where that fails.
      smallest_counted = std::string_view(name) == "load" ? 256 : 0;
      allocations_left = last;
      try {
        call();
        // Some are of what it can do without.
        spared = std::exchange(allocations_left, -1) > 0;
      } catch (const Error& error) {
        allocations_left = -1;
        EXPECT_NE(std::string_view(error.what()).find("memory ran out"), std::string_view::npos)
            << name << ", allocation " << last << ": " << error.what();
        // A batch tries again by its kind, not its text.
        EXPECT_TRUE(name == std::string_view("load") ||
                    lacked_host_memory(std::current_exception()))
            << name << ", allocation " << last;
        ++failed;
      } catch (const std::exception& error) {
        allocations_left = -1;
        ADD_FAILURE() << name << ", allocation " << last << ": no Error: " << error.what();
      }
      if (HasFailure()) return;
      ASSERT_LT(last, 1000000) << name;
    }
    std::cout << name << ": " << failed << " allocations that failed\n";
    EXPECT_GT(failed, 0) << name;
  }
  later_ones_fail = false;
}

// What was half taken over is not looked up in.
TEST(OutOfMemory, AnswersAreThereWholeOrNotAtAll) {
  const auto answer = [](TokenId first) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 60; ++i) tokens.push_back(first + i % 20);
    return tokens;
  };
  const auto follower = [](const AnswerIndex& of, TokenId token) {
    const auto after = of.index().after(of.index().then({}, token));
    return after.empty() ? -1 : after[0].token;
  };
  int failed = 0;
  bool spared = false;
  for (long last = 0; !spared; last += later_ones_fail ? 1 + last / 40 : 0) {
    SCOPED_TRACE(::testing::Message() << "allocation " << last);
    later_ones_fail = !later_ones_fail;
    AnswerIndex answers(400);
    const std::vector<TokenId> second = answer(200);
    answers.add(answer(100));
    const std::int64_t before = answers.version();
    allocations_left = last;
    for (int again = 0; again < 6; ++again) answers.add(second);
    spared = std::exchange(allocations_left, -1) > 0;
    const bool lost = follower(answers, 100) < 0;
    EXPECT_TRUE(!lost || answers.version() > before);
    failed += answers.version() > before + (spared ? 1 : 0);
    answers.add(answer(300));
    answers.add(second);
    for (TokenId i = 0; i < 19; ++i) {
      ASSERT_EQ(follower(answers, 300 + i), 301 + i);
      ASSERT_EQ(follower(answers, 200 + i), 201 + i);
    }
  }
  later_ones_fail = false;
  EXPECT_GT(failed, 20);
}

TEST(OutOfMemory, ATextThatCouldNotBeFollowedIsFollowedAnew) {
  std::vector<TokenId> text;
  for (TokenId i = 0; i < 90; ++i) text.push_back(i % 37);
  int failed = 0;
  bool spared = false;
  for (long last = 0; !spared; ++last) {
    SCOPED_TRACE(::testing::Message() << "allocation " << last);
    TextIndex index;
    index.begin(text);
    index.follow(std::span(text).first(40));
    allocations_left = last;
    try {
      index.follow(text);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    spared = std::exchange(allocations_left, -1) > 0;
    index.follow(text);
    ASSERT_TRUE(std::ranges::equal(index.index().tokens(), text));
    EXPECT_EQ(index.index().end().length, 53);
  }
  EXPECT_GT(failed, 20);
}

}  // namespace
}  // namespace coppice::testing
