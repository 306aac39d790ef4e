// Tree sizes of texts that share their passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/endless_pair.h"
#include "engine/engine_impl.h"
#include "planted/planted.h"

namespace coppice::testing {
namespace {

void plant_costs(Engine& engine, std::vector<PassCosts::Point> target,
                 std::vector<PassCosts::Point> draft) {
  CostTable costs;
  costs.target = PassCosts(1, 100, std::move(target));
  costs.draft = PassCosts(1, 100, std::move(draft));
  inside(engine).costs = costs;
  inside(engine).costs_are_saved = true;
}

// A row more costs little up to 16 of them, and much beyond. Nothing follows the clock.
void plant_costs(Engine& engine) {
  plant_costs(engine, {{1, 1.0, 1.0}, {16, 1.1, 1.1}, {17, 2.0, 2.0}, {512, 90.0, 90.0}},
              {{1, 1e-3, 1e-3}, {512, 1e-3, 1e-3}});
}

// Rows are cheap, passes over prompts are dear.
void plant_dear_prompts(Engine& engine) {
  plant_costs(engine, {{1, 1.0, 1.0}, {512, 1.2, 1.2}},
              {{1, 0.02, 0.02}, {64, 0.05, 0.05}, {512, 16.0, 16.0}});
}

std::vector<Request> requests_of(std::size_t count, const Speculation& speculation) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateOptions options = greedy(60);
    options.speculation = speculation;
    options.stream = i;
    requests.push_back(request_of({1, 7, 3, static_cast<TokenId>(9 + i)}, options));
  }
  return requests;
}

double mean_tree(Engine& engine, const std::vector<Request>& requests) {
  double nodes = 0.0;
  for (const Outcome& outcome : engine.generate(requests)) {
    nodes += only(outcome).statistics.tree_size_mean;
  }
  return nodes / static_cast<double>(requests.size());
}

TEST(BatchSizes, AutomaticOnesShareTheCheapRows) {
  const TinyPair pair(endless(), 0.0);  // the draft equals the target
  Engine engine = Engine::load(pair.options());
  plant_costs(engine);
  EXPECT_GE(mean_tree(engine, requests_of(1, Dyspec{})), 6.0);
  const double of_four = mean_tree(engine, requests_of(4, Dyspec{}));
  EXPECT_GE(of_four, 1.0);
  EXPECT_LE(of_four, 4.5);
  EXPECT_LE(mean_tree(engine, requests_of(8, Dyspec{})), 2.0);
  EXPECT_LE(mean_tree(engine, requests_of(16, Dyspec{})), 0.5);
}

TEST(BatchSizes, GivenOnesStay) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_costs(engine);
  std::vector<Request> requests = requests_of(4, Dyspec{6});
  const double alone = mean_tree(engine, {requests[0]});
  for (const Request& other : requests_of(8, Dyspec{})) requests.push_back(other);
  const std::vector<Outcome> outcomes = engine.generate(requests);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(only(outcomes[i]).statistics.tree_size_mean, alone, 0.5);
  }
}

// Prompts of 104 tokens that the models themselves have written: no draft seems useless there.
std::vector<Request> with_long_prompts(Engine& engine, std::size_t count,
                                       const Speculation& speculation) {
  std::vector<Request> requests = requests_of(count, speculation);
  for (Request& request : requests) {
    GenerateOptions plain = greedy(100);
    plain.speculation = Plain{};
    const Generation written = engine.generate(request.tokens, plain);
    request.tokens.insert(request.tokens.end(), written.tokens.begin(), written.tokens.end());
  }
  return requests;
}

// Text that repeats itself would be found without a draft.
std::vector<Request> without_lookup(std::vector<Request> requests) {
  for (Request& request : requests) request.options.lookup = Lookup::none;
  return requests;
}

// Token for token. A GPU sums products of other rows in another order.
void expect_plain_tokens(Engine& engine, const std::vector<Request>& requests,
                         const std::vector<Outcome>& outcomes) {
  if (on_cuda()) return;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    GenerateOptions plain = requests[i].options;
    plain.speculation = Plain{};
    EXPECT_EQ(only(outcomes[i]).tokens, engine.generate(requests[i].tokens, plain).tokens) << i;
  }
}

// Every row costs what it does: texts side by side cannot win, a single one may.
TEST(BatchSizes, NoDraftBeginsWhereItCannotPay) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_costs(engine, {{1, 1.0, 1.0}, {2, 1.2, 1.2}, {4, 2.0, 2.0}, {512, 256.0, 256.0}},
              {{1, 0.05, 0.05}, {512, 25.6, 25.6}});
  const std::vector<Request> requests = without_lookup(with_long_prompts(engine, 4, Dyspec{}));
  const std::vector<Outcome> outcomes = engine.generate(requests);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(only(outcome).statistics.draft_passes, 0);
    EXPECT_EQ(only(outcome).statistics.steps, 59);
  }
  expect_plain_tokens(engine, requests, outcomes);
  const Generation alone = engine.generate(requests[0].tokens, requests[0].options);
  EXPECT_GE(alone.statistics.draft_passes, 2) << "of its prompt, and of a try";
  const std::vector<Request> asked = with_long_prompts(engine, 4, Dyspec{6});
  for (const Outcome& outcome : engine.generate(asked)) {
    EXPECT_GE(only(outcome).statistics.tree_size_mean, 4.0) << "given sizes begin";
  }
}

// Rows are cheap, prompts are dear, and the draft knows nothing: one text finds out for all.
TEST(BatchSizes, OthersDoNotFollowAProbeWhoseDraftIsUseless) {
  const TinyPair pair(endless(), 1.0);
  EngineOptions load = pair.options();
  load.prefix_cache = false;  // prompts are all to be computed
  Engine engine = Engine::load(load);
  plant_dear_prompts(engine);
  const std::vector<Request> requests = without_lookup(with_long_prompts(engine, 4, Dyspec{}));
  // Steps, not passes: a first tree may be deep, where draft passes cost next to nothing.
  std::map<const SequenceState*, std::pair<int, int>> tried;  // steps, and tokens accepted
  inside(engine).observer = [&](const StepView& view) {
    if (!view.is_step() || view.draft_passes == 0) return;
    auto& [steps, accepted] = tried[&view.state];
    ++steps;
    accepted += static_cast<int>(view.verdict.path.size());
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  inside(engine).observer = nullptr;
  ASSERT_EQ(tried.size(), 1u) << "texts speculated";
  const auto [steps, accepted] = tried.begin()->second;
  EXPECT_LE(steps, 8 + 4 * accepted) << "it goes on for what it won by luck alone";
  EXPECT_GE(only(outcomes[0]).statistics.draft_passes, 1);
  for (std::size_t i = 1; i < outcomes.size(); ++i) {
    EXPECT_EQ(only(outcomes[i]).statistics.draft_passes, 0) << i;
  }
  expect_plain_tokens(engine, requests, outcomes);
  expect_nothing_leaked(engine);
}

// Speculation pays, but prompts are dear: one text tries it first.
TEST(BatchSizes, OthersCatchUpWhenAProbeHasFoundThatItPays) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_dear_prompts(engine);
  const std::vector<Request> requests = without_lookup(with_long_prompts(engine, 4, Chain{}));
  std::map<const SequenceState*, std::vector<std::int64_t>> passes;  // by text and step
  inside(engine).observer = [&](const StepView& view) {
    if (view.is_step()) passes[&view.state].push_back(view.draft_passes);
  };
  const auto began_at_once = [&] {
    return std::count_if(passes.begin(), passes.end(),
                         [](const auto& text) { return text.second.front() > 0; });
  };
  const std::vector<Outcome> outcomes = engine.generate(requests);
  ASSERT_EQ(passes.size(), 4u);
  EXPECT_EQ(began_at_once(), 1);
  for (const auto& [text, by_step] : passes) {
    ASSERT_GE(by_step.size(), 8u);
    if (by_step.front() == 0) {
      const auto plain = std::count(by_step.begin(), by_step.end(), 0);
      EXPECT_GE(plain, 7) << "until the probe has found out";
      EXPECT_LE(plain, 10) << "and then it catches up";
    }
  }
  // What was found holds for the next texts.
  passes.clear();
  engine.generate(requests);
  EXPECT_EQ(began_at_once(), 4);
  inside(engine).observer = nullptr;
  expect_plain_tokens(engine, requests, outcomes);
  expect_nothing_leaked(engine);
}

// A step that cannot be learned from is taken again: nothing of it was kept, so no token is
// missing.
TEST(BatchSizes, FailuresToLearnCostNoToken) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_costs(engine);
  const std::vector<Request> requests = requests_of(4, Dyspec{});
  const std::vector<Outcome> outcomes = [&] {
    const Planted planted(Fault::shared_steps_are_not_learned);
    return engine.generate(requests);
  }();
  for (const Outcome& outcome : outcomes) EXPECT_EQ(only(outcome).tokens.size(), 60u);
  expect_plain_tokens(engine, requests, outcomes);
  expect_nothing_leaked(engine);
}

// A draft computes a prompt that texts share once. Each would have to pay for all of it alone if it
// were not shared out; all together can.
TEST(BatchSizes, WhatTheDraftLacksOfASharedPromptIsPaidOnce) {
  const TinyPair pair(endless(), 0.0);
  Engine engine = Engine::load(pair.options());
  plant_dear_prompts(engine);
  // It is known then what chains win.
  engine.generate(without_lookup(with_long_prompts(engine, 4, Chain{})));
  plant_costs(engine, {{1, 1.0, 1.0}, {512, 1.2, 1.2}},
              {{1, 0.02, 0.02}, {64, 0.05, 0.05}, {512, 400.0, 400.0}});
  // From plain texts, so that the tree has its KV of the target alone.
  const std::vector<TokenId> shared = with_long_prompts(engine, 1, Chain{})[0].tokens;
  std::vector<Request> requests = without_lookup(requests_of(8, Chain{}));
  for (Request& request : requests) {
    const TokenId own = request.tokens.back();
    request.tokens = shared;
    request.tokens.push_back(own);
  }
  engine.drop_cache();
  GenerateOptions plain = greedy(2);
  plain.speculation = Plain{};
  engine.generate(shared, plain);
  std::map<const SequenceState*, std::vector<std::int64_t>> passes;  // by text and step
  inside(engine).observer = [&](const StepView& view) {
    if (view.is_step()) passes[&view.state].push_back(view.draft_passes);
  };
  engine.generate(requests);
  inside(engine).observer = nullptr;
  ASSERT_EQ(passes.size(), 8u);
  for (const auto& [text, by_step] : passes) {
    const auto plain_steps = std::count(by_step.begin(), by_step.end(), 0);
    EXPECT_LE(plain_steps, 2) << "of " << by_step.size();
  }
  expect_nothing_leaked(engine);
}

}  // namespace
}  // namespace coppice::testing
