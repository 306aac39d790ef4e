// Advice from synthetic costs, and what it is made of.
#include "study/advise.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/pair.h"
#include "engine_impl.h"
#include "study/advise_report.h"
#include "study/observed.h"
#include "tree_plan.h"

namespace coppice::study {
namespace {

using testing::TinyModel;
using testing::TinyPair;

CostTable costs(double target_base, double target_row, double draft_base, double draft_row) {
  const auto table = [](double base, double row) {
    std::vector<PassCosts::Point> points;
    for (const std::int32_t rows : {1, 2, 8, 64, 128}) {
      points.push_back({rows, base + row * rows, base + row * rows});
    }
    return PassCosts(1, 512, points);
  };
  return {"synthetic", table(target_base, target_row), table(draft_base, draft_row)};
}

AdviceRequest request(double temperature = 1.0) {
  AdviceRequest request;
  request.prompts = {{1, 4, 2, 5}, {1, 7, 9}};
  request.sampling.temperature = temperature;
  request.sampling.seed = 3;
  request.new_tokens = 80;
  request.check = false;
  request.follow_clock = false;
  return request;
}

TinyModel model() {
  TinyModel model;
  model.vocab_size = 32;
  model.logit_scale = 3.0;
  return model;
}

TEST(Advise, PlainForAUselessDraftSpeculationForAGoodOne) {
  const TinyPair useless(model(), 1.0), good(model(), 0.1);
  const CostTable table = costs(1e-3, 1e-4, 4e-4, 1e-5);
  const auto advice_for = [&](const TinyPair& pair) {
    Engine engine = Engine::load(pair.options());
    engine.impl().costs = table;
    return advise(engine, request());
  };
  const Advice no = advice_for(useless);
  EXPECT_FALSE(no.pays);
  EXPECT_EQ(no.advised.policy, Policy::none);
  const std::string words = to_text(no, "COMMAND");
  EXPECT_NE(words.find("Speculation will not pay here"), std::string::npos) << words;
  EXPECT_EQ(policy_options(no.advised), "--policy none");

  const Advice yes = advice_for(good);
  EXPECT_TRUE(yes.pays) << to_text(yes, "COMMAND");
  EXPECT_NE(yes.advised.policy, Policy::none);
  EXPECT_GE(yes.advised.speedup, least_speedup);
  EXPECT_GT(yes.advised.accepted_length, 1.5);
  for (const Prediction& candidate : yes.candidates) {
    EXPECT_LE(candidate.tokens_per_second, yes.advised.tokens_per_second);
    EXPECT_NEAR(candidate.speedup, candidate.tokens_per_second / yes.plain.tokens_per_second, 1e-9);
  }
  EXPECT_NEAR(yes.plain.tokens_per_second, 1.0 / 1.1e-3, 1e-6);
  const auto json = nlohmann::json::parse(to_json(yes, "COMMAND"));
  EXPECT_EQ(json["pays"], true);
  EXPECT_EQ(json["command"], "COMMAND");
  EXPECT_EQ(json["candidates"].size(), yes.candidates.size());
}

// Free drafting and rows: the largest trees win; rows that cost as much as passes: small ones do.
TEST(Advise, SizesFollowCosts) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  engine.impl().costs = costs(1e-3, 0.0, 1e-9, 0.0);
  const Advice free_rows = advise(engine, request());
  engine.impl().costs = costs(1e-4, 1e-3, 1e-5, 0.0);
  const Advice dear_rows = advise(engine, request());
  EXPECT_GE(free_rows.advised.tree_size, 32);
  EXPECT_LE(dear_rows.advised.tree_size, 2);
  ASSERT_EQ(free_rows.candidates.size(), dear_rows.candidates.size());
}

// What hindsight says of a smaller tree is what that tree does: the same text, step by step, where
// shared noise makes steps comparable.
TEST(Advise, HindsightEqualsTheSmallerTree) {
  const TinyPair pair(model(), 0.5);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.temperature = 1.0;
  for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
    options.acceptance = acceptance;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      options.seed = seed;
      const std::vector<TokenId> prompt = {1, static_cast<TokenId>(seed % 30), 2};
      // One step of a tree, and what add() makes of it.
      const auto first_step = [&](Policy policy, std::int32_t size, const auto& add) {
        Workload workload;
        const Observed observed(engine, [&](const StepView& view) {
          add(workload, view.tree, view.verdict.path);
          workload.tokens += 1000.0 * static_cast<double>(view.draft_passes);
        });
        options.policy = policy;
        options.tree_size = size;
        engine.judge_tree(prompt, options);
        return workload;
      };
      options.max_new_tokens = 64;
      for (const std::int32_t size : {1, 3, 8, 20}) {
        const auto hindsight = [&](Workload& w, const TokenTree& tree, const auto& path) {
          add_dyspec(w, tree, path, size);
        };
        const Workload large = first_step(Policy::dyspec, 40, hindsight);
        const Workload small = first_step(Policy::dyspec, size, hindsight);
        EXPECT_EQ(std::fmod(large.tokens, 1000.0), std::fmod(small.tokens, 1000.0));
        EXPECT_EQ(large.verify_passes, small.verify_passes);
        double passes = 0.0;
        for (const auto& [rows, count] : large.draft_passes) passes += count;
        EXPECT_NEAR(passes, std::floor(small.tokens / 1000.0), 1.0) << "draft passes";
      }
      const auto chain_of = [&](std::int32_t length) {
        return [length](Workload& w, const TokenTree& tree, const auto& path) {
          add_chain(w, tree, path, length);
        };
      };
      const Workload large = first_step(Policy::chain, 12, chain_of(4));
      const Workload small = first_step(Policy::chain, 4, chain_of(4));
      EXPECT_EQ(std::fmod(large.tokens, 1000.0), std::fmod(small.tokens, 1000.0));
      EXPECT_EQ(large.draft_passes, small.draft_passes);
    }
  }
}

TEST(Advise, FixedTreesInsideLargerOnes) {
  const std::vector<RankPath> large_paths = {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}};
  const std::vector<RankPath> small_paths = {{0}, {0, 0}};
  const std::vector<RankPath> other_paths = {{0}, {1}, {2}};
  const TreeShape large(large_paths), small(small_paths), other(other_paths);
  EXPECT_TRUE(holds(large, small));
  EXPECT_TRUE(holds(large, large));
  EXPECT_FALSE(holds(large, other));
  EXPECT_FALSE(holds(small, large));

  TokenTree tree;
  tree.reset(0);
  const std::int32_t a = tree.add(0, 5, 0, 0.5f, 1.0);
  tree.add(0, 6, 1, 0.2f, 0.5);
  tree.add(a, 7, 0, 0.5f, 0.5);
  const std::int32_t second = tree.add(a, 8, 1, 0.2f, 0.2);
  const std::vector<std::int32_t> path = {a, second};
  Workload in_large, in_small;
  add_fixed(in_large, tree, path, large);
  add_fixed(in_small, tree, path, small);
  EXPECT_EQ(in_large.tokens, 3.0);
  EXPECT_EQ(in_small.tokens, 2.0);  // the second child is not in it
  EXPECT_EQ(in_small.verify_passes, (std::map<std::int32_t, double>{{3, 1.0}}));
  EXPECT_EQ(in_small.draft_passes, (std::map<std::int32_t, double>{{1, 2.0}}));
  EXPECT_EQ(in_large.draft_passes, (std::map<std::int32_t, double>{{1, 3.0}}));

  RankCounts ranks;
  ranks.add(tree, path);
  EXPECT_EQ(ranks.judged, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(ranks.accepted, (std::vector<std::int64_t>{1, 1}));
}

TEST(Advise, PredictionIsAcceptedLengthOverSeconds) {
  const CostTable table = costs(1e-3, 1e-5, 1e-4, 0.0);
  Workload workload;
  const std::vector<std::int32_t> rows = {1, 2};
  workload.add_step(3.0, 4, rows);
  workload.add_step(1.0, 4, rows);
  Calibration clock;
  clock.verify.add(5, 2.0, 1.0);
  clock.draft.add(1, 0.5, 1.0);
  clock.step_seconds = 1e-5;
  clock.node_seconds = 1e-6;
  const Prediction p = predict(workload, table, 100, clock);
  EXPECT_EQ(p.accepted_length, 2.0);
  EXPECT_EQ(p.nodes, 4.0);
  EXPECT_NEAR(p.verify_seconds, 2.0 * 1.05e-3, 1e-12);
  EXPECT_NEAR(p.draft_seconds, 0.5 * 2e-4, 1e-12);
  EXPECT_NEAR(p.other_seconds, 1.4e-5, 1e-15);
  EXPECT_NEAR(p.tokens_per_second, 2.0 / (2.1e-3 + 1e-4 + 1.4e-5), 1e-6);
}

TEST(Advise, ClockRatiosLieBetweenWhatWasSeen) {
  ClockRatio ratio;
  EXPECT_EQ(ratio.at(3), 1.0);
  ratio.add(4, 1.0, 1.0);
  ratio.add(4, 3.0, 1.0);
  ratio.add(8, 1.0, 1.0);
  EXPECT_EQ(ratio.at(1), 2.0);
  EXPECT_EQ(ratio.at(4), 2.0);
  EXPECT_EQ(ratio.at(6), 1.5);
  EXPECT_EQ(ratio.at(8), 1.0);
  EXPECT_EQ(ratio.at(100), 1.0);
}

TEST(Advise, ChecksAreRun) {
  const TinyPair pair(model(), 0.2);
  Engine engine = Engine::load(pair.options());
  engine.impl().costs = costs(1e-3, 1e-5, 1e-5, 0.0);
  AdviceRequest checked = request(0.0);
  checked.check = true;
  checked.follow_clock = true;
  checked.new_tokens = fewest_new_tokens;
  const Advice advice = advise(engine, checked);
  ASSERT_EQ(advice.checks.size(), 3u);  // plain, the best, automatic
  for (const CheckedPrediction& one : advice.checks) {
    EXPECT_GT(one.measured, 0.0);
    EXPECT_GE(one.measured_length, 1.0);
  }
  EXPECT_EQ(advice.checks[0].policy, Policy::none);
  EXPECT_EQ(advice.checks[0].measured_length, 1.0);
  EXPECT_GT(advice.calibration.plain.at(1), 0.0);
  EXPECT_NE(to_text(advice, "COMMAND").find("run on other texts"), std::string::npos);
}

TEST(Advise, TextsThatDoNotFitAreRefusedBeforeMeasuring) {
  const TinyPair pair(model(), 0.2);
  const auto expect_refused = [](Engine& engine, const AdviceRequest& asked, const char* names) {
    try {
      advise(engine, asked);
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
    }
    EXPECT_FALSE(engine.impl().costs.has_value()) << "nothing was measured";
  };
  EngineOptions small = pair.options();
  small.kv_tokens = 16;
  Engine little_memory = Engine::load(small);
  expect_refused(little_memory, request(), "--kv-tokens");
  Engine engine = Engine::load(pair.options());
  AdviceRequest full = request();
  const std::int32_t room = engine.context_length() - full.new_tokens;
  full.prompts.emplace_back(static_cast<std::size_t>(room) + 1, 4);
  expect_refused(engine, full, "--prompt-tokens");
  EXPECT_NO_THROW(require_room(engine, room, full.new_tokens));
}

TEST(Advise, CostsThatAreNotPositiveAreRefused) {
  const TinyPair pair(model(), 0.2);
  Engine engine = Engine::load(pair.options());
  engine.impl().costs = costs(1e-3, 1e-5, 1e-3, -1e-3);
  try {
    advise(engine, request());
    ADD_FAILURE() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_NE(std::string(error.what()).find("draft's cost"), std::string::npos) << error.what();
  }
}

TEST(Advise, WrongRequestsAreRefused) {
  const TinyPair pair(model(), 0.2);
  Engine engine = Engine::load(pair.options());
  AdviceRequest wrong = request();
  wrong.prompts.clear();
  EXPECT_THROW(advise(engine, wrong), Error);
  wrong = request();
  wrong.new_tokens = fewest_new_tokens - 1;
  EXPECT_THROW(advise(engine, wrong), Error);
  wrong = request();
  wrong.sampling.top_p = 0.0;
  EXPECT_THROW(advise(engine, wrong), Error);
}

}  // namespace
}  // namespace coppice::study
