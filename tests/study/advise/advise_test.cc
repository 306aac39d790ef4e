// Advice on synthetic machines, and what it is made of.
#include "study/advise/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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
  return request;
}

// What real texts would take on a machine of these costs.
AdviceRequest on_costs(Engine& engine, const CostTable& table, AdviceRequest asked = request()) {
  asked.run = [&engine, table, prompts = asked.prompts](const GenerateOptions& options,
                                                        std::size_t prompt) {
    Trial trial;
    const Observed observed(engine, [&](const StepView& view) {
      if (!view.is_step()) return;
      trial.steps += 1.0;
      trial.kept += static_cast<double>(view.verdict.path.size()) + 1.0;
      trial.drafted += view.tree.size();
      trial.verify_seconds += table.target.seconds(view.tree.nodes(), 50);
      trial.draft_seconds += static_cast<double>(view.draft_passes) * table.draft.seconds(1, 50);
    });
    engine.generate(prompts[prompt], options);
    trial.tokens = trial.kept;
    trial.seconds = trial.verify_seconds + trial.draft_seconds;
    return trial;
  };
  return asked;
}

TinyModel model() {
  TinyModel model;
  model.vocab_size = 32;
  model.logit_scale = 3.0;
  return model;
}

TEST(Advise, PlainForAUselessDraftSpeculationForAGoodOne) {
  const TinyPair useless(model(), 1.0), good(model(), 0.1);
  // Rows that cost much: else looked-up children pay where the draft's do not.
  const CostTable table = costs(1e-3, 1e-4, 4e-4, 1e-5), dear_rows = costs(1e-3, 2e-3, 4e-4, 1e-5);
  const auto advice_for = [](const TinyPair& pair, const CostTable& costs_of_all) {
    Engine engine = Engine::load(pair.options());
    inside(engine).costs = costs_of_all;
    return advise(engine, on_costs(engine, costs_of_all));
  };
  const Advice no = advice_for(useless, dear_rows);
  EXPECT_FALSE(no.pays);
  EXPECT_EQ(no.advised.policy, Policy::none);
  const std::string words = to_text(no, "COMMAND");
  EXPECT_NE(words.find("Speculation is not expected to pay here"), std::string::npos) << words;
  EXPECT_EQ(policy_options(no), "--policy none");

  const Advice yes = advice_for(good, table);
  EXPECT_TRUE(yes.pays) << to_text(yes, "COMMAND");
  EXPECT_NE(yes.advised.policy, Policy::none);
  EXPECT_GE(yes.advised.sampled_speedup, least_speedup);
  EXPECT_GT(yes.advised.sampled.accepted_length(), 1.5);
  EXPECT_NEAR(yes.plain.sampled.tokens_per_second(), 1.0 / 1.1e-3, 1e-6);
  // Those that were tried on both prompts are as fast as they say; the slow ones only on one.
  std::size_t whole = 0;
  for (const Candidate& one : yes.candidates) {
    if (one.sampled.tokens < 1.5 * 80) continue;
    ++whole;
    EXPECT_LE(one.sampled_speedup, yes.advised.sampled_speedup);
    EXPECT_NEAR(one.sampled_speedup,
                one.sampled.tokens_per_second() / yes.plain.sampled.tokens_per_second(), 1e-9);
  }
  EXPECT_EQ(whole, yes.candidates.size() / 2);
  // The text says how the list came about, and what stands in it.
  const std::string list = to_text(yes, "COMMAND");
  for (const char* said : {"Tried in short runs", "the slower half is left out",
                           "\"prompts\" says on how many", "< marks what is advised"}) {
    EXPECT_NE(list.find(said), std::string::npos) << said << "\n" << list;
  }
  std::size_t marked = 0;
  for (auto at = list.find(" <\n"); at != list.npos; at = list.find(" <\n", at + 1)) ++marked;
  EXPECT_EQ(marked, 1u) << list;
  for (const Candidate& one : yes.candidates) {
    EXPECT_EQ(one.prompts, one.sampled.tokens < 1.5 * 80 ? 1 : 2);
  }
  const auto json = nlohmann::json::parse(to_json(yes, "COMMAND"));
  EXPECT_EQ(json["pays"], true);
  EXPECT_EQ(json["command"], "COMMAND");
  EXPECT_EQ(json["candidates"].size(), yes.candidates.size());
}

// Free drafting and rows: the largest trees win; rows that cost as much as passes: small ones do.
TEST(Advise, SizesFollowCosts) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  const auto advice_on = [&](const CostTable& table) {
    inside(engine).costs = table;
    return advise(engine, on_costs(engine, table));
  };
  const Advice free_rows = advice_on(costs(1e-3, 0.0, 1e-9, 0.0));
  const Advice dear_rows = advice_on(costs(1e-4, 1e-3, 1e-5, 0.0));
  EXPECT_GE(free_rows.advised.tree_size, 32);
  EXPECT_LE(dear_rows.advised.tree_size, 2);
  // Sequoia's trees, and so their sizes, are planned for the costs; the others' are a grid.
  const auto gridded = [](const Advice& advice) {
    return std::count_if(advice.candidates.begin(), advice.candidates.end(),
                         [](const Candidate& p) { return p.policy != Policy::sequoia; });
  };
  EXPECT_EQ(gridded(free_rows), gridded(dear_rows));
}

// Layers that every pass copies make rows nearly free: larger trees are tried then, also with the
// target's own copy as the draft.
TEST(Advise, TriesLargeTreesWhereLayersAreStreamed) {
  TinyModel deep = model();
  deep.layers = 3;
  deep.hidden_size = deep.intermediate_size = 256;  // whole blocks of q4_k
  const TinyPair pair(deep, 0.3);
  EngineOptions options = pair.options();
  options.streamed_tree_size = 768;
  const auto largest_tried = [&](bool streams) {
    options.gpu_layers = streams ? 0 : -1;
    options.max_tree_size = streams ? 768 : largest_advised_tree;
    Engine engine = Engine::load(options);
    const CostTable table = costs(1e-3, 0.0, 1e-9, 0.0);
    inside(engine).costs = table;
    std::int32_t largest = 0;
    const Advice advice = advise(engine, on_costs(engine, table));
    for (const Candidate& one : advice.candidates) largest = std::max(largest, one.tree_size);
    EXPECT_EQ(advice.largest_tree, largest);
    return largest;
  };
  EXPECT_EQ(largest_tried(false), 64);
  EXPECT_EQ(largest_tried(true), 768);
  options.draft = options.target;
  options.draft_weights = WeightRounding::q4_k;
  EXPECT_EQ(largest_tried(true), 768);
}

TEST(Advise, ChecksAreRun) {
  const TinyPair pair(model(), 0.2);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-5, 1e-5, 0.0);
  AdviceRequest checked = request(0.0);
  checked.check = true;
  checked.new_tokens = fewest_new_tokens;
  const Advice advice = advise(engine, checked);
  ASSERT_TRUE(advice.check.has_value());
  const std::vector<Candidate>& settings = advice.check->settings;
  // Plain, the best of two policies, automatic: the draft's, beside lookup, and lookup alone.
  ASSERT_EQ(settings.size(), 6u);
  for (const Candidate& one : settings) {
    EXPECT_GT(one.measured.tokens_per_second(), 0.0);
    EXPECT_GE(one.measured.accepted_length(), 1.0);
    EXPECT_LE(one.lowest, one.speedup);
    EXPECT_LE(one.speedup, one.highest);
  }
  EXPECT_TRUE(settings[0].plain());
  EXPECT_EQ(settings[0].measured.accepted_length(), 1.0);
  EXPECT_EQ(settings[0].speedup, 1.0);
  EXPECT_EQ(settings[3].tree_size, 0);
  EXPECT_NE(settings[1].name(), settings[2].name());
  EXPECT_EQ(settings[3].name(), "dyspec");
  EXPECT_EQ(settings[4].name(), "dyspec+lookup");
  EXPECT_EQ(settings[5].name(), "lookup");
  EXPECT_EQ(settings[3].measured.looked_up, 0.0);
  EXPECT_GT(settings[5].measured.looked_up, 0.0);
  EXPECT_EQ(settings[5].measured.drafted, settings[5].measured.looked_up);
  EXPECT_EQ(settings[5].measured.draft_seconds, 0.0);
  for (std::size_t s = 3; s < settings.size(); ++s) EXPECT_FALSE(settings[s].is_sampled());
  EXPECT_NE(to_text(advice, "COMMAND").find("Run alternately"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(advice, "COMMAND"));
  EXPECT_EQ(json["confirmed"], true);
  EXPECT_GT(json["advised"]["tokens_per_second"], 0.0)
      << "automatic sizes have the rounds' figures";
  EXPECT_EQ(json["checks"].size(), settings.size());
}

// A machine on which speculation makes `speed` of plain decoding, and `promised` in short runs;
// `slow` says how much slower than usual a run is, by how many have been made of the check.
AdviceRequest on_machine(double promised, double speed,
                         std::function<double(std::int64_t run)> slow = {}) {
  AdviceRequest asked = request();
  asked.check = true;
  asked.acceptance_vector = {0.8, 0.1};
  asked.run = [=, prompts = asked.prompts.size(), made = std::make_shared<std::int64_t>(0)](
                  const GenerateOptions& options, std::size_t) {
    const bool sampled = options.stream < prompts;
    const bool plain = std::holds_alternative<Plain>(options.speculation);
    const double seconds = plain ? 1.0 : 1.0 / (sampled ? promised : speed);
    return Trial{1000.0, seconds * (slow && !sampled ? slow((*made)++) : 1.0), 400.0, 1000.0};
  };
  return asked;
}

// Short runs on a busy machine promise what no round keeps, and the other way round.
TEST(Advise, TheVerdictIsWhatRoundsConfirm) {
  const TinyPair pair(model(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-6, 1e-6, 0.0);
  const Advice promised = advise(engine, on_machine(1.5, 0.9));
  ASSERT_FALSE(promised.candidates.empty());
  EXPECT_DOUBLE_EQ(promised.candidates.front().sampled_speedup, 1.5);
  EXPECT_FALSE(promised.pays);
  EXPECT_EQ(policy_options(promised), "--policy none");
  std::string words = to_text(promised, "COMMAND");
  EXPECT_NE(words.find("Speculation will not pay here"), std::string::npos) << words;
  EXPECT_EQ(words.find("Advised: "), std::string::npos) << words;

  const Advice kept = advise(engine, on_machine(1.3, 1.24));
  EXPECT_TRUE(kept.pays);
  words = to_text(kept, "COMMAND");
  EXPECT_NE(words.find("Advised: 1.24 times"), std::string::npos) << words;
  EXPECT_NE(words.find("1.24 to 1.24 in 3 rounds; 1.30 in short runs"), std::string::npos) << words;
  EXPECT_FALSE(kept.check->noisy());
  EXPECT_EQ(words.find("noisy"), std::string::npos) << words;

  const Advice better = advise(engine, on_machine(0.8, 1.5));
  EXPECT_LT(better.candidates.back().sampled_speedup, 1.0);
  EXPECT_TRUE(better.pays);
  EXPECT_NE(better.advised.policy, Policy::none);
}

// Where looked-up children pay, with the draft or without, the advice says how to ask for them.
TEST(Advise, LookupIsTriedAndNamed) {
  const TinyPair pair(model(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-6, 1e-6, 0.0);
  const auto advice_where = [&](bool drafts) {
    AdviceRequest asked = on_machine(1.1, 1.1);
    asked.run = [usual = asked.run, drafts](const GenerateOptions& options, std::size_t prompt) {
      Trial trial = usual(options, prompt);
      if (options.lookup == Lookup::text && options.use_draft == drafts) trial.seconds /= 2.0;
      return trial;
    };
    return advise(engine, asked);
  };
  const Advice both = advice_where(true), alone = advice_where(false);
  EXPECT_EQ(both.advised.name(), "dyspec+lookup");
  EXPECT_EQ(policy_options(both).find("--policy dyspec"), 0u);
  EXPECT_NE(policy_options(both).find("--lookup text"), std::string::npos);
  EXPECT_EQ(policy_options(both).find("--draft none"), std::string::npos);
  EXPECT_EQ(alone.advised.name(), "lookup");
  EXPECT_NE(policy_options(alone).find("--lookup text --draft none"), std::string::npos);
  EXPECT_NE(to_text(both, "COMMAND").find("dyspec+lookup"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(alone, "COMMAND"));
  EXPECT_EQ(json["advised"]["policy"], "lookup");
  EXPECT_EQ(json["advised"]["looked_up"], 0.0) << "this machine tells nothing of it";
}

TEST(Advise, ANoisyMachineIsNamed) {
  const TinyPair pair(model(), 0.1);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-6, 1e-6, 0.0);
  // Every setting of the second round takes twice as long: ratios stand, and the noise is told.
  constexpr std::int64_t runs_of_round = 6 * 2;
  const Advice alike = advise(engine, on_machine(1.3, 1.3, [](std::int64_t run) {
                                return run / runs_of_round == 1 ? 2.0 : 1.0;
                              }));
  EXPECT_TRUE(alike.pays);
  EXPECT_TRUE(alike.check->noisy());
  EXPECT_NEAR(alike.check->settings[*alike.check->best].lowest, 1.3, 1e-9);
  EXPECT_NE(to_text(alike, "COMMAND").find("This machine is noisy"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(alike, "COMMAND"))["noisy"], true);
  // Runs that are each slow at random: nothing is confirmed that was not faster every time.
  const Advice random = advise(engine, on_machine(1.1, 1.1, [](std::int64_t run) {
                                 return 1.0 + static_cast<double>((run * 7919) % 11) / 5.0;
                               }));
  ASSERT_TRUE(random.check.has_value());
  EXPECT_TRUE(random.check->noisy());
  for (const Candidate& one : random.check->settings) EXPECT_LE(one.lowest, one.highest);
  if (random.pays) {
    EXPECT_GT(random.check->settings[*random.check->best].lowest, 1.0);
  }
}

TEST(Advise, RoundsOfBothSignsLeaveItOpen) {
  std::vector<Candidate> settings(2);
  settings[1].policy = Policy::chain;
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
  EXPECT_EQ(open->settings[1].measured.accepted_length(), 2.0);
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

// Sizes are those of the trees, not those that were asked for: ten layers of one child hold ten.
TEST(Advise, SequoiasTreesAreNamedByTheirNodes) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  inside(engine).costs = costs(1e-3, 1e-4, 4e-4, 1e-5);
  const auto sizes_for = [&](std::vector<double> vector) {
    AdviceRequest asked = on_machine(1.0, 1.0);
    asked.check = false;
    asked.acceptance_vector = std::move(vector);
    std::vector<std::int32_t> sizes;
    for (const Candidate& one : advise(engine, asked).candidates) {
      if (one.policy == Policy::sequoia) sizes.push_back(one.tree_size);
    }
    return sizes;
  };
  for (const std::int32_t size : sizes_for({0.9})) EXPECT_LE(size, 10);
  // A vector of three ranks has trees of every size; a star of three nodes is none of 16.
  const std::vector<std::int32_t> sizes = sizes_for({0.8, 0.1, 0.05});
  EXPECT_EQ(std::set<std::int32_t>(sizes.begin(), sizes.end()).size(), sizes.size());
  for (const std::int32_t size : {4, 8, 16}) {
    EXPECT_TRUE(std::find(sizes.begin(), sizes.end(), size) != sizes.end()) << size;
  }
}

TEST(Advise, StopEndsItWhereverItIs) {
  const TinyPair pair(model(), 0.3);
  Engine engine = Engine::load(pair.options());
  const CostTable table = costs(1e-3, 1e-5, 1e-4, 0.0);
  inside(engine).costs = table;
  AdviceRequest asked = request();
  asked.check = true;
  asked.new_tokens = fewest_new_tokens;
  std::int64_t asked_times = 0, after = 0;
  asked.stop = [&] { return ++asked_times >= after && after > 0; };
  // Within texts, whatever is faster by the clock.
  for (const std::int64_t within : {1, 100, 300}) {
    asked_times = 0;
    after = within;
    EXPECT_TRUE(advise(engine, asked).stopped) << within;
    EXPECT_LE(asked_times, after + 2) << "it went on";
  }
  // Between runs, of which there are as many each time on a machine of these costs.
  const AdviceRequest same = on_costs(engine, table, asked);
  asked_times = after = 0;
  EXPECT_FALSE(advise(engine, same).stopped);
  const std::int64_t all = asked_times;
  for (const std::int64_t between : {all / 4, all / 2, all - 1}) {
    asked_times = 0;
    after = between;
    EXPECT_TRUE(advise(engine, same).stopped) << between;
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

std::vector<std::string> names_of(const std::vector<DraftFormat>& formats) {
  std::vector<std::string> names;
  for (const DraftFormat& one : formats) names.push_back(one.name);
  return names;
}

TEST(DraftFormats, AreThoseThatThePairCanHave) {
  using Names = std::vector<std::string>;
  const TinyPair pair;
  EngineOptions options = pair.options();
  const std::vector<DraftFormat> all = draft_formats(options);
  EXPECT_EQ(names_of(all), (Names{"as stored", "q8_0", "q4_k", "self:q4_k"}));
  EXPECT_EQ(all[0].pair.draft_weights, WeightRounding::keep);
  EXPECT_EQ(all[1].pair.draft_weights, WeightRounding::q8_0);
  EXPECT_EQ(all[2].pair.draft, options.draft);
  EXPECT_EQ(all[3].pair.draft, options.target);
  EXPECT_EQ(all[3].pair.draft_weights, WeightRounding::q4_k);
  options.target_weights = WeightRounding::q4_k;
  EXPECT_EQ(names_of(draft_formats(options)), (Names{"as stored", "q8_0", "q4_k"}));
  options = pair.options();
  options.draft = options.target;
  EXPECT_EQ(names_of(draft_formats(options)), (Names{"as stored", "q8_0", "q4_k"}));
}

TEST(DraftFormats, TheFastestIsTakenButTheStoredOneForLittle) {
  const auto best = [](std::vector<double> speeds) {
    std::vector<DraftFormat> formats;
    for (const double speed : speeds) {
      formats.push_back({.name = "one"});
      if (speed == 0.0) continue;  // could not be tried
      formats.back().plain = {.tokens = 50.0, .seconds = 0.5};
      formats.back().drafted = {.tokens = 100.0 * speed, .seconds = 1.0};
    }
    return best_format(formats);
  };
  EXPECT_EQ(best({1.0, 1.5, 1.4, 0.9}), 1u);
  EXPECT_EQ(best({1.0, 1.01, 0.9}), 0u);
  EXPECT_EQ(best({1.0, 1.03, 1.04}), 2u);
  EXPECT_EQ(best({0.5, 0.0, 0.0}), 0u);
}

// On synthetic machines that only the engine's draft tells apart.
TEST(DraftFormats, AreTriedBesidePlainDecodingAndToldOf) {
  const TinyPair pair(model(), 0.1);
  std::vector<DraftFormat> formats = draft_formats(pair.options());
  formats.resize(2);
  Advice advice;
  for (DraftFormat& one : formats) {
    Engine engine = Engine::load(one.pair);
    const bool rounded = one.name == "q8_0";
    const CostTable table = costs(1e-3, 1e-5, rounded ? 1e-4 : 8e-4, 0.0);
    inside(engine).costs = table;
    ASSERT_TRUE(try_format(engine, on_costs(engine, table), one));
    EXPECT_NEAR(one.draft_seconds, rounded ? 1e-4 : 8e-4, 1e-12);
    EXPECT_NEAR(one.plain.tokens_per_second(), 1.0 / 1.01e-3, 1e-6);
    EXPECT_GT(one.drafted.accepted_length(), 1.0);
    if (rounded) advice = advise(engine, on_costs(engine, table));
  }
  EXPECT_GT(formats[1].speedup(), 1.5 * formats[0].speedup());
  advice.format = best_format(formats);
  EXPECT_EQ(advice.format, 1u);
  EXPECT_EQ(to_text(advice, "COMMAND").find("draft weights"), std::string::npos) << "none tried";
  EXPECT_TRUE(nlohmann::json::parse(to_json(advice, "COMMAND"))["draft_format"].is_null());
  advice.formats = formats;
  advice.formats.push_back({.name = "self:q4_k", .problem = "no memory"});
  const std::string words = to_text(advice, "COMMAND");
  EXPECT_NE(words.find("\nself:q4_k could not be tried: no memory\n"), words.npos) << words;
  const std::size_t row = words.find("\nq8_0 ");
  ASSERT_NE(row, words.npos) << words;
  EXPECT_EQ(words[words.find('\n', row + 1) - 1], '<') << words;
  const auto json = nlohmann::json::parse(to_json(advice, "COMMAND"));
  EXPECT_EQ(json["draft_format"], "q8_0");
  EXPECT_EQ(json["draft_formats"][1]["draft_weights"], "q8_0");
  EXPECT_NEAR(json["draft_formats"][1]["speedup"], formats[1].speedup(), 1e-9);
  EXPECT_EQ(json["draft_formats"][2]["error"], "no memory");
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
