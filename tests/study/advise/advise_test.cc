// Advice from synthetic costs, and what it is made of.
#include "study/advise/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "engine/policy_options.h"
#include "study/acceptance/acceptance.h"
#include "study/observed.h"

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
  request.sampling.sampling.temperature = temperature;
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
    inside(engine).costs = table;
    return advise(engine, request());
  };
  const Advice no = advice_for(useless);
  EXPECT_FALSE(no.pays);
  EXPECT_EQ(no.advised.policy, Policy::none);
  const std::string words = to_text(no, "COMMAND");
  EXPECT_NE(words.find("Speculation is not expected to pay here"), std::string::npos) << words;
  EXPECT_EQ(policy_options(no), "--policy none");

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
  inside(engine).costs = costs(1e-3, 0.0, 1e-9, 0.0);
  const Advice free_rows = advise(engine, request());
  inside(engine).costs = costs(1e-4, 1e-3, 1e-5, 0.0);
  const Advice dear_rows = advise(engine, request());
  EXPECT_GE(free_rows.advised.tree_size, 32);
  EXPECT_LE(dear_rows.advised.tree_size, 2);
  // Sequoia's trees, and so their sizes, are planned for the costs; the others' are a grid.
  const auto gridded = [](const Advice& advice) {
    return std::count_if(advice.candidates.begin(), advice.candidates.end(),
                         [](const Prediction& p) { return p.policy != Policy::sequoia; });
  };
  EXPECT_EQ(gridded(free_rows), gridded(dear_rows));
}

// What hindsight says of a smaller tree is what that tree does: the same text, step by step, where
// shared noise makes steps comparable.
TEST(Advise, HindsightEqualsTheSmallerTree) {
  const TinyPair pair(model(), 0.5);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 1.0;
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
        options.speculation = speculation_of(policy, size);
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
  ClockCalibration clock;
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
  inside(engine).costs = costs(1e-3, 1e-5, 1e-5, 0.0);
  AdviceRequest checked = request(0.0);
  checked.check = true;
  checked.follow_clock = true;
  checked.new_tokens = fewest_new_tokens;
  const Advice advice = advise(engine, checked);
  ASSERT_TRUE(advice.check.has_value());
  const std::vector<CheckedPrediction>& settings = advice.check->settings;
  ASSERT_EQ(settings.size(), 4u);  // plain, the best of two policies, automatic
  for (const CheckedPrediction& one : settings) {
    EXPECT_GT(one.measured, 0.0);
    EXPECT_GE(one.measured_length, 1.0);
    EXPECT_LE(one.lowest, one.speedup);
    EXPECT_LE(one.speedup, one.highest);
  }
  EXPECT_EQ(settings[0].foretold.policy, Policy::none);
  EXPECT_EQ(settings[0].measured_length, 1.0);
  EXPECT_EQ(settings[0].speedup, 1.0);
  EXPECT_EQ(settings[3].foretold.tree_size, 0);
  EXPECT_GT(advice.calibration.plain.at(1), 0.0);
  EXPECT_NE(to_text(advice, "COMMAND").find("Run alternately"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(advice, "COMMAND"));
  EXPECT_EQ(json["confirmed"], true);
  EXPECT_EQ(json["checks"].size(), settings.size());
}

// A machine on which speculation makes `speed` of plain decoding; `slow` says how much slower than
// usual a run is, by how many have been made.
AdviceRequest on_machine(double speed, std::function<double(std::int64_t run)> slow = {}) {
  AdviceRequest asked = request();
  asked.check = true;
  asked.new_tokens = fewest_new_tokens;
  asked.run = [speed, slow, made = std::make_shared<std::int64_t>(0)](
                  const GenerateOptions& options, std::size_t) {
    const double seconds = std::holds_alternative<Plain>(options.speculation) ? 1.0 : 1.0 / speed;
    return Trial{1000.0, seconds * (slow ? slow((*made)++) : 1.0), 400.0, 1000.0};
  };
  return asked;
}

// A cost table taken on a busy machine promises what no run keeps, and the other way round.
TEST(Advise, TheVerdictIsWhatRunsConfirm) {
  const TinyPair pair(model(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-6, 1e-6, 0.0);
  const Advice promised = advise(engine, on_machine(0.9));
  ASSERT_FALSE(promised.candidates.empty());
  const auto faster = [](const Prediction& a, const Prediction& b) {
    return a.speedup < b.speedup;
  };
  EXPECT_GT(
      std::max_element(promised.candidates.begin(), promised.candidates.end(), faster)->speedup,
      1.5);
  EXPECT_FALSE(promised.pays);
  EXPECT_EQ(policy_options(promised), "--policy none");
  std::string words = to_text(promised, "COMMAND");
  EXPECT_NE(words.find("Speculation will not pay here"), std::string::npos) << words;
  EXPECT_EQ(words.find("Advised: "), std::string::npos) << words;

  const Advice kept = advise(engine, on_machine(1.24));
  EXPECT_TRUE(kept.pays);
  words = to_text(kept, "COMMAND");
  EXPECT_NE(words.find("Advised: 1.24 times"), std::string::npos) << words;
  EXPECT_NE(words.find("1.24 to 1.24 in 3 rounds"), std::string::npos) << words;
  EXPECT_FALSE(kept.check->noisy());
  EXPECT_EQ(words.find("noisy"), std::string::npos) << words;

  inside(engine).costs = costs(1e-4, 1e-3, 1e-3, 1e-3);
  const Advice better = advise(engine, on_machine(1.5));
  EXPECT_LT(better.candidates.back().speedup, 1.0);
  EXPECT_TRUE(better.pays);
  EXPECT_NE(better.advised.policy, Policy::none);
}

TEST(Advise, ANoisyMachineIsNamed) {
  const TinyPair pair(model(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-6, 1e-6, 0.0);
  // Every setting of the second round takes twice as long: ratios stand, and the noise is told.
  constexpr std::int64_t runs_of_round = 4 * 2;
  const Advice alike = advise(engine, on_machine(1.3, [](std::int64_t run) {
                                return run / runs_of_round == 1 ? 2.0 : 1.0;
                              }));
  EXPECT_TRUE(alike.pays);
  EXPECT_TRUE(alike.check->noisy());
  EXPECT_NEAR(alike.check->settings[*alike.check->best].lowest, 1.3, 1e-9);
  EXPECT_NE(to_text(alike, "COMMAND").find("This machine is noisy"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(alike, "COMMAND"))["noisy"], true);
  // Runs that are each slow at random: nothing is confirmed that was not faster every time.
  const Advice random = advise(engine, on_machine(1.1, [](std::int64_t run) {
                                 return 1.0 + static_cast<double>((run * 7919) % 11) / 5.0;
                               }));
  ASSERT_TRUE(random.check.has_value());
  EXPECT_TRUE(random.check->noisy());
  for (const CheckedPrediction& one : random.check->settings) EXPECT_LE(one.lowest, one.highest);
  if (random.pays) {
    EXPECT_GT(random.check->settings[*random.check->best].lowest, 1.0);
  }
}

TEST(Advise, RoundsOfBothSignsLeaveItOpen) {
  std::vector<CheckedPrediction> settings(2);
  settings[1].foretold.policy = Policy::chain;
  const auto check_with = [&](std::vector<double> seconds) {
    return confirm(settings, 1, 3, [&](std::size_t s, std::size_t, std::int32_t round) {
      return Trial{10.0, s == 0 ? 1.0 : seconds[static_cast<std::size_t>(round)], 5.0, 10.0};
    });
  };
  const auto open = check_with({0.5, 1.25, 0.8});
  EXPECT_FALSE(open->best.has_value());
  EXPECT_TRUE(open->undecided);
  EXPECT_DOUBLE_EQ(open->settings[1].speedup, 1.25);
  EXPECT_DOUBLE_EQ(open->settings[1].lowest, 0.8);
  EXPECT_DOUBLE_EQ(open->settings[1].highest, 2.0);
  EXPECT_EQ(open->settings[1].measured_length, 2.0);
  EXPECT_EQ(check_with({0.5, 0.9, 0.8})->best, std::optional<std::size_t>(1));
  const auto slower = check_with({1.5, 1.1, 1.2});
  EXPECT_FALSE(slower->best.has_value());
  EXPECT_FALSE(slower->undecided);
  // The first to run changes from prompt to prompt and round to round.
  std::vector<std::size_t> first;
  std::size_t made = 0;
  confirm(settings, 2, 2, [&](std::size_t s, std::size_t, std::int32_t) {
    if (made++ % 2 == 0) first.push_back(s);
    return Trial{1.0, 1.0, 1.0, 1.0};
  });
  EXPECT_EQ(first, (std::vector<std::size_t>{0, 1, 1, 0}));
}

// A chain of 4 is a chain of 4, whichever policy makes it.
TEST(Advise, EqualTreesArePricedEqually) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-5, 1e-4, 0.0);
  AdviceRequest asked = request();
  asked.acceptance_vector = {0.9};  // one child of each node: Sequoia's trees are chains
  const Advice advice = advise(engine, asked);
  std::map<std::int32_t, Prediction> chains;
  std::size_t compared = 0;
  for (const Prediction& p : advice.candidates) {
    if (p.policy == Policy::chain) chains[p.tree_size] = p;
  }
  for (const Prediction& p : advice.candidates) {
    const auto same =
        chains.find(p.policy == Policy::sequoia ? std::min(p.tree_size, p.tree_depth) : -1);
    if (same == chains.end()) continue;
    ++compared;
    EXPECT_EQ(p.tokens_per_second, same->second.tokens_per_second) << p.tree_size;
    EXPECT_EQ(p.accepted_length, same->second.accepted_length) << p.tree_size;
  }
  EXPECT_GE(compared, 2u);
  // Sizes are those of the trees, which 10 layers of one child hold, not those that were asked for.
  std::set<std::int32_t> sizes;
  for (const Prediction& p : advice.candidates) {
    if (p.policy != Policy::sequoia) continue;
    EXPECT_TRUE(sizes.insert(p.tree_size).second) << p.tree_size << " twice";
    EXPECT_LE(p.tree_size, 10);
  }
  EXPECT_GE(sizes.size(), 2u);
}

// A vector of three ranks has trees of every size; a star of three nodes is none of 16.
TEST(Advise, SequoiasTreesHaveTheSizesAskedFor) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-4, 4e-4, 1e-5);
  AdviceRequest asked = request();
  asked.acceptance_vector = {0.8, 0.1, 0.05};
  std::set<std::int32_t> sizes;
  for (const Prediction& p : advise(engine, asked).candidates) {
    if (p.policy == Policy::sequoia) sizes.insert(p.tree_size);
  }
  for (const std::int32_t size : {4, 8, 16}) EXPECT_TRUE(sizes.contains(size)) << size;
  EXPECT_FALSE(sizes.contains(3));
}

// Whatever the table and the clock say of single passes, more rows never come out cheaper.
TEST(Advise, NoisyCostsArePricedMonotonely) {
  ClockCalibration clock;
  clock.plain.add(1, 3.0, 1.0);  // timed while the machine was busy
  for (const std::int32_t rows : {2, 3, 4, 9, 17, 33}) {
    clock.verify.add(rows, 0.5 + (rows * 37 % 10) / 7.0, 1.0);
    clock.draft.add(rows, 0.5 + (rows * 53 % 10) / 7.0, 1.0);
  }
  const CostTable table = costs(1e-3, 1e-6, 1e-4, 1e-7);
  const double plain = predict_plain(table, 100, clock).verify_seconds;
  double last = plain, last_draft = 0.0;
  for (std::int32_t rows = 1; rows <= 64; ++rows) {
    Workload workload;
    const std::vector<std::int32_t> drafted = {rows};
    workload.add_step(1.0, rows, drafted);
    const Prediction p = predict(workload, table, 100, clock);
    EXPECT_GE(p.verify_seconds, last) << rows;
    EXPECT_GE(p.draft_seconds, last_draft) << rows;
    last = p.verify_seconds;
    last_draft = p.draft_seconds;
  }
}

TEST(Advise, StopEndsItWhereverItIs) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-5, 1e-4, 0.0);
  inside(engine).costs_are_saved = true;  // sizes that follow the clock take other numbers of steps
  std::int64_t asked_times = 0;
  AdviceRequest asked = request();
  asked.check = true;
  asked.new_tokens = fewest_new_tokens;
  asked.stop = [&] { return ++asked_times < 0; };
  EXPECT_FALSE(advise(engine, asked).stopped);
  const std::int64_t all = asked_times;
  for (const std::int64_t after : {std::int64_t{1}, all / 4, all / 2, all - 1}) {
    asked_times = 0;
    asked.stop = [&] { return ++asked_times >= after; };
    const Advice advice = advise(engine, asked);
    EXPECT_TRUE(advice.stopped) << after;
    EXPECT_LE(asked_times, after + 2) << "it went on";
  }
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
    EXPECT_FALSE(inside(engine).costs.has_value()) << "nothing was measured";
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
  inside(engine).costs = costs(1e-3, 1e-5, 1e-3, -1e-3);
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
  wrong.sampling.sampling.top_p = 0.0;
  EXPECT_THROW(advise(engine, wrong), Error);
}

}  // namespace
}  // namespace coppice::study
