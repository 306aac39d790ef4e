// Replays against real runs of the same pair.
#include "study/replay/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>

#include "drafting/sequoia.h"
#include "engine/check_speculation.h"
#include "reference/files.h"
#include "reference/quick.h"
#include "study/grid/runner.h"
#include "study/replay/own_acceptance.h"
#include "study/replay/recorded_pair.h"

namespace coppice::testing {
namespace {

using study::RecordedPosition;
using study::RecordedText;
using study::Recording;
using study::ReplayedStep;
using study::Replayer;

constexpr std::int32_t text_length = 24;

// Fixed sizes of every policy.
std::vector<GenerateOptions> settings() {
  std::vector<GenerateOptions> all;
  // What a run learns does not replay: plain values.
  for (const Speculation& speculation : std::vector<Speculation>{
           Dyspec{3, true}, Dyspec{12, true}, Dyspec{40, true}, DyspecThreshold{0.06, 20, true},
           Chain{5}, SpecInferWidths{{2, 2, 1}}, Sequoia{16}, ExpandRerank{10, 0, 2}}) {
    GenerateOptions& options = all.emplace_back();
    options.speculation = speculation;
    options.max_new_tokens = text_length;
    options.ignore_eos = true;
  }
  return all;
}

// The same with looked-up children, beside the draft's and alone.
std::vector<GenerateOptions> looking_up() {
  std::vector<GenerateOptions> all;
  for (const Speculation& speculation :
       std::vector<Speculation>{Dyspec{3, true}, Dyspec{12, true}, Dyspec{40, true},
                                DyspecThreshold{0.06, 20, true}, Chain{1}, Chain{5}}) {
    for (const bool drafts : {true, false}) {
      GenerateOptions& options = all.emplace_back();
      options.speculation = speculation;
      options.max_new_tokens = text_length;
      options.ignore_eos = true;
      options.lookup = Lookup::text;
      options.use_draft = drafts;
    }
  }
  // Without the draft nothing is learned of it.
  all.push_back(all.back());
  all.back().speculation = Dyspec{8};
  return all;
}

std::string name_of(const GenerateOptions& options) {
  return cat(coppice::name_of(options.speculation), options.lookup == Lookup::text ? "+lookup" : "",
             options.use_draft ? "" : " without draft", " ", asked_size(options.speculation),
             " temperature ", options.sampling.temperature, " ",
             coppice::name_of(options.acceptance));
}

study::RecordOptions record_options(double temperature, std::int32_t nodes, std::int32_t top_k) {
  study::RecordOptions options;
  options.generate.sampling.temperature = temperature;
  options.generate.seed = 21;
  options.generate.max_new_tokens = text_length;
  options.nodes = nodes;
  options.top_k = top_k;
  return options;
}

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "recording reads the draft on the host";
  }
  // Peaked enough that trees are accepted some way down.
  static TinyModel peaked() {
    TinyModel model;
    model.logit_scale = 3.0;
    return model;
  }
  /// Texts of the pair after so many prompts, as they come back from a file.
  Recording recorded(const study::RecordOptions& options, int prompts) const {
    Engine engine = Engine::load(pair_.options());
    return through_file(record_all(engine, options, tiny_prompts(prompts)));
  }

  TinyPair pair_{peaked(), 0.25};
};

struct Comparison {
  std::int64_t looked_up = 0, accepted = 0;  ///< tokens that were looked up
  std::int64_t steps = 0;
  std::int64_t complete = 0;   ///< whose growth found all that it asked for
  std::int64_t differing = 0;  ///< of these, other ones than the run's
};

// Compares the steps of settings whose text no judging decides with those of real runs.
Comparison compare_steps(Engine& engine, const Recording& recording,
                         const std::vector<std::vector<TokenId>>& prompts, double temperature,
                         const std::vector<GenerateOptions>& all = settings()) {
  Comparison result;
  for (GenerateOptions options : all) {
    options.sampling.temperature = temperature;
    options.acceptance = Acceptance::coupled;
    options.seed = recording.header.seed;
    Replayer replayer(recording, options);
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      options.stream = p;
      std::map<std::int32_t, RealStep> real;
      for (const RealStep& step : real_steps(engine, prompts[p], options)) {
        real[step.position] = step;
      }
      for (const ReplayedStep& step : steps_of(replayer, recording.texts[p], 99)) {
        ++result.steps;
        result.looked_up += step.looked_up;
        result.accepted += step.looked_up_accepted;
        const auto found = real.find(step.position);
        // What is not on record may lead a walk elsewhere.
        if (!step.complete || found == real.end()) continue;
        const RealStep& run = found->second;
        ++result.complete;
        const bool same = run.accepted_length == step.accepted_length &&
                          run.tree_size == step.tree_size &&
                          run.draft_passes == step.draft_passes && run.looked_up == step.looked_up;
        result.differing += same ? 0 : 1;
      }
    }
  }
  return result;
}

// With the whole vocabulary recorded, and many nodes, every step of every policy is the real run's,
// but for the few that ask for a node beyond these.
TEST_F(Replay, MakesTheVeryStepsOfGreedyAndCoupledRuns) {
  EngineOptions engine_options = pair_.options();
  engine_options.max_tree_size = 511;
  Engine engine = Engine::load(engine_options);
  const auto prompts = tiny_prompts(3);
  for (const double temperature : {0.0, 0.9}) {
    const Recording recording =
        through_file(record_all(engine, record_options(temperature, 512, 96), prompts));
    const Comparison found = compare_steps(engine, recording, prompts, temperature);
    EXPECT_EQ(found.differing, 0) << temperature;
    EXPECT_GT(found.steps, 200);
    EXPECT_GT(found.complete, found.steps * 3 / 4);
    std::cout << "temperature " << temperature << ": " << found.complete << " of " << found.steps
              << " steps complete\n";
  }
}

// Texts that say the same again and again are looked up in, and what lookup has learned by a step
// is what it had learned by then in the run.
TEST_F(Replay, MakesTheVeryStepsOfRunsThatLookUp) {
  EngineOptions engine_options = pair_.options();
  engine_options.max_tree_size = 511;
  Engine engine = Engine::load(engine_options);
  std::vector<std::vector<TokenId>> prompts;
  for (const TokenId token : {5, 9}) {
    std::vector<TokenId> prompt = {1};
    for (TokenId i = 0; i < 60; ++i) prompt.push_back(token + 7 * i % 20);
    prompts.push_back(prompt);
  }
  for (const double temperature : {0.0, 0.5}) {
    const Recording recording =
        through_file(record_all(engine, record_options(temperature, 512, 96), prompts));
    const Comparison found = compare_steps(engine, recording, prompts, temperature, looking_up());
    EXPECT_EQ(found.differing, 0) << temperature;
    EXPECT_GT(found.steps, 200);
    EXPECT_GT(found.complete, found.steps * 2 / 3);
    EXPECT_GT(found.accepted, 20) << temperature;
    EXPECT_GT(found.looked_up, found.accepted);
    std::cout << "temperature " << temperature << ": " << found.complete << " of " << found.steps
              << " steps complete, " << found.accepted << " of " << found.looked_up
              << " looked-up tokens accepted\n";
    // The comparison is able to fail: of prompts that repeat nothing.
    Recording other = recording;
    for (RecordedText& text : other.texts) {
      for (std::size_t i = 0; i < 41; ++i) text.prompt_ids[i] = static_cast<TokenId>(40 + i);
    }
    EXPECT_GT(compare_steps(engine, other, prompts, temperature, looking_up()).differing, 10);
  }
}

// What runs of fixed shapes cost does not depend on what is on record, nor on how far it goes: a
// study's sizes and passes of the same texts, and its steps, out of eight nodes a position.
TEST_F(Replay, FixedShapesHaveTheSizesAndPassesOfAStudy) {
  EngineOptions load = pair_.options();
  load.prefix_cache = false;  // as a study's
  Engine engine = Engine::load(load);
  const auto prompts = tiny_prompts(3);
  std::vector<study::Cell> cells(4);
  cells[0].policy = Policy::chain;
  cells[0].tree_size = 20;
  cells[1].policy = Policy::chain;
  cells[1].tree_size = 6;
  cells[2].policy = Policy::specinfer;
  cells[2].widths = {2, 2, 1, 1, 1, 1};
  cells[3].policy = Policy::sequoia;
  cells[3].tree_size = 40;
  GenerateOptions shared;
  shared.max_new_tokens = text_length;
  shared.ignore_eos = true;
  for (const double temperature : {0.0, 0.9}) {
    const Recording recording =
        through_file(record_all(engine, record_options(temperature, 8, 4), prompts));
    for (study::Cell& cell : cells) {
      cell.temperature = temperature;
      cell.acceptance = Acceptance::coupled;
      cell.seed = recording.header.seed;
      const study::ReplayRow row = study::replay_all(recording, cell.request(shared), 1);
      double steps = 0.0, drafted = 0.0, passes = 0.0;
      std::int64_t together = 0;
      Replayer replayer(recording, cell.request(shared));
      for (std::size_t p = 0; p < prompts.size(); ++p) {
        GenerateOptions options = cell.request(shared);
        options.stream = p;
        const auto result = study::run_cell(engine, options, {prompts[p]}, {});
        steps += static_cast<double>(result->steps());
        drafted += static_cast<double>(result->drafted());
        passes += static_cast<double>(result->draft_passes) - 1.0;  // the prompt's is no step's
        std::map<std::int32_t, RealStep> real;
        for (const RealStep& step : real_steps(engine, prompts[p], options)) {
          real[step.position] = step;
        }
        for (const ReplayedStep& step : steps_of(replayer, recording.texts[p], 0)) {
          const auto found = real.find(step.position);
          if (found == real.end()) continue;
          ++together;
          EXPECT_EQ(step.tree_size, found->second.tree_size) << cell.key();
          EXPECT_EQ(step.draft_passes, found->second.draft_passes) << cell.key();
        }
      }
      EXPECT_GT(together, 10) << cell.key();
      if (cell.tree_size == 20) {
        EXPECT_GT(row.unrecorded_share, 0.5) << cell.key();
      }
      EXPECT_LE(row.short_share, row.unrecorded_share) << cell.key();
      if (cell.policy == Policy::chain) {  // one path: all that is accepted is on record
        EXPECT_EQ(row.steps, static_cast<std::int64_t>(steps)) << cell.key();
        EXPECT_DOUBLE_EQ(row.tree_size, drafted / steps) << cell.key();
        EXPECT_DOUBLE_EQ(row.draft_passes, passes / steps) << cell.key();
      }
      const std::string table = to_text(study::replay_table({row}));
      EXPECT_EQ(table.find('~'), std::string::npos) << table;
    }
    GenerateOptions by_value = settings()[2];
    by_value.sampling.temperature = temperature;
    by_value.acceptance = Acceptance::coupled;
    const std::string table =
        to_text(study::replay_table({study::replay_all(recording, by_value, 1)}));
    EXPECT_NE(table.find('~'), std::string::npos) << table;
  }
}

// The comparison of steps is able to fail: the target's rows moved by one node.
TEST_F(Replay, ShiftedTargetRowsAreNoticed) {
  Engine engine = Engine::load(pair_.options());
  const auto prompts = tiny_prompts(1);
  for (const double temperature : {0.0, 0.9}) {
    Recording recording =
        through_file(record_all(engine, record_options(temperature, 192, 96), prompts));
    for (RecordedText& text : recording.texts) {
      for (RecordedPosition& p : text.positions) {
        std::rotate(p.target_token.begin(), p.target_token.begin() + 1, p.target_token.end());
      }
    }
    const Comparison found = compare_steps(engine, recording, prompts, temperature);
    EXPECT_GT(found.differing, found.steps / 5) << temperature;
  }
}

// Accepted length by text: mean, and the variance of the mean.
struct Mean {
  double mean = 0.0, variance = 0.0;
};

Mean mean_of(const std::vector<std::pair<double, double>>& tokens_and_steps) {
  double tokens = 0.0, steps = 0.0;
  for (const auto& [t, s] : tokens_and_steps) {
    tokens += t;
    steps += s;
  }
  Mean result{tokens / steps, 0.0};
  // The variance of a ratio of sums over independent texts, to first order.
  for (const auto& [t, s] : tokens_and_steps) {
    const double rest = t - result.mean * s;
    result.variance += rest * rest;
  }
  result.variance /= steps * steps;
  return result;
}

Mean real_mean(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
               GenerateOptions options) {
  std::vector<std::pair<double, double>> by_text;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    options.stream = p;
    options.seed = 1234;  // not the recording's
    auto& [tokens, steps] = by_text.emplace_back(0.0, 0.0);
    for (const RealStep& step : real_steps(engine, prompts[p], options)) {
      tokens += step.accepted_length;
      ++steps;
    }
  }
  return mean_of(by_text);
}

Mean replay_mean(const Recording& recording, const GenerateOptions& options, std::uint64_t seeds) {
  Replayer replayer(recording, options);
  std::vector<std::pair<double, double>> by_text;
  for (const RecordedText& text : recording.texts) {
    auto& [tokens, steps] = by_text.emplace_back(0.0, 0.0);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      for (const ReplayedStep& step : steps_of(replayer, text, seed)) {
        tokens += step.accepted_length;
        ++steps;
      }
    }
  }
  return mean_of(by_text);
}

// Five standard deviations of the difference of two means over independent texts: a right replay
// fails a comparison with probability 6e-7, or 4e-5 by the twenty texts of a quick build, whose
// deviation is less well known. (Seeds are given.)
double allowed(const Mean& a, const Mean& b) { return 5.0 * std::sqrt(a.variance + b.variance); }

std::vector<GenerateOptions> sampled_settings(double temperature) {
  std::vector<GenerateOptions> all = settings();
  std::erase_if(all,
                [](const auto& o) { return std::holds_alternative<ExpandRerank>(o.speculation); });
  for (GenerateOptions& options : all) options.sampling.temperature = temperature;
  return all;
}

// Moves the target's rows on by one node, within each position.
void shift_target_rows(Recording& recording) {
  for (RecordedText& text : recording.texts) {
    for (RecordedPosition& p : text.positions) {
      ASSERT_EQ(p.token.size() % static_cast<std::size_t>(p.nodes()), 0u);
      std::rotate(p.target.begin(),
                  p.target.begin() + static_cast<std::ptrdiff_t>(p.first_entry[1]), p.target.end());
    }
  }
}

TEST_F(Replay, AgreesWithRunsUnderRejectionAndNoticesShiftedRows) {
  Engine engine = Engine::load(pair_.options());
  const auto prompts = tiny_prompts(quick ? 20 : 40);
  Recording recording = through_file(record_all(engine, record_options(0.9, 64, 96), prompts));
  std::vector<Mean> real;
  for (const GenerateOptions& options : sampled_settings(0.9)) {
    real.push_back(real_mean(engine, prompts, options));
    const Mean replayed = replay_mean(recording, options, 4);
    EXPECT_NEAR(replayed.mean, real.back().mean, allowed(replayed, real.back()))
        << name_of(options);
  }
  shift_target_rows(recording);
  std::size_t i = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const GenerateOptions& options : sampled_settings(0.9)) {
    const Mean replayed = replay_mean(recording, options, 4);
    least = std::min(least, std::abs(replayed.mean - real[i].mean) / allowed(replayed, real[i]));
    ++i;
  }
  std::cout << "shifted rows differ by at least " << least << " times what is allowed\n";
  EXPECT_GT(least, 1.0);
}

// The pair that is shipped, 16 tokens a node of 4096: where noise is shared, steps that found all
// that they asked for are the run's.
TEST_F(Replay, AgreesWithTheShippedPair) {
  Engine engine = Engine::load(shipped_options());
  std::vector<std::vector<TokenId>> all;
  for (const std::string& text : prompts()) {
    if (all.size() < 4) all.push_back(engine.tokenize(text));
  }
  study::RecordOptions options = record_options(0.8, 64, 16);
  options.generate.max_new_tokens = text_length;
  const Recording recording = through_file(record_all(engine, options, all));
  const Comparison found = compare_steps(engine, recording, all, 0.8);
  EXPECT_EQ(found.differing, 0);
  EXPECT_GT(found.steps, 120);
  EXPECT_GT(found.complete, found.steps / 2);
}

TEST_F(Replay, SummariesAreSumsOfSteps) {
  const Recording recording = recorded(record_options(0.9, 32, 8), 5);
  GenerateOptions options;
  options.speculation = Dyspec{6};
  const study::ReplayRow row = study::replay_all(recording, options, 2);
  Replayer replayer(recording, options);
  double steps = 0.0, tokens = 0.0, drafted = 0.0;
  for (const RecordedText& text : recording.texts) {
    for (const std::uint64_t seed : {0u, 1u}) {
      std::int32_t position = 1;
      for (const ReplayedStep& step : steps_of(replayer, text, seed)) {
        EXPECT_EQ(step.position, position);
        position += step.accepted_length;
        steps += 1.0;
        tokens += step.accepted_length;
        drafted += step.tree_size;
      }
      EXPECT_GE(position, text.length());
    }
  }
  EXPECT_EQ(row.steps, static_cast<std::int64_t>(steps));
  EXPECT_DOUBLE_EQ(row.accepted_length.value, tokens / steps);
  EXPECT_DOUBLE_EQ(row.accepted_share.value, (tokens - steps) / drafted);
  EXPECT_DOUBLE_EQ(row.tree_size, drafted / steps);
  EXPECT_LT(row.accepted_length.low, row.accepted_length.high);
  const std::string csv = to_csv(study::replay_csv({row}));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
  const std::string names = csv.substr(0, csv.find('\n')), figures = csv.substr(names.size() + 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), ','),
            std::count(figures.begin(), figures.end(), ','));
  EXPECT_EQ(figures.rfind("dyspec-plain,6,rejection,0.9,", 0), 0u);
}

// Walks that are made together share grown trees, and no more.
TEST_F(Replay, WalksTogetherAreTheWalksOneByOne) {
  const Recording recording = recorded(record_options(0.9, 48, 8), 2);
  constexpr std::uint64_t first_seed = 5, seeds = 7;
  const auto figures = [](const ReplayedStep& s) {
    return std::vector<std::int32_t>{s.position,     s.accepted_length,  s.tree_size,
                                     s.draft_passes, s.complete ? 1 : 0, s.ended_short ? 1 : 0};
  };
  std::int64_t shared = 0;
  for (const GenerateOptions& options : sampled_settings(0.9)) {
    Replayer together(recording, options), alone(together);
    for (const RecordedText& text : recording.texts) {
      std::map<std::uint64_t, std::vector<ReplayedStep>> walks;
      std::map<std::int32_t, std::int64_t> met;
      together.replay(text, first_seed, seeds, [&](std::uint64_t seed, const ReplayedStep& step) {
        walks[seed].push_back(step);
        shared += met[step.position]++ > 0 ? 1 : 0;
      });
      ASSERT_EQ(walks.size(), seeds);
      for (const auto& [seed, steps] : walks) {
        const auto wanted = steps_of(alone, text, seed);
        ASSERT_EQ(steps.size(), wanted.size()) << name_of(options);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          EXPECT_EQ(figures(steps[i]), figures(wanted[i])) << name_of(options) << " step " << i;
        }
      }
    }
  }
  EXPECT_GT(shared, 100);
}

TEST_F(Replay, SummariesAreTheSameForAnyNumberOfThreads) {
  const Recording recording = recorded(record_options(0.9, 32, 8), 3);
  GenerateOptions options;
  options.speculation = Dyspec{6};
  for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
    options.acceptance = acceptance;
    const auto figures = [&](int threads) {
      return to_csv(study::replay_csv({study::replay_all(recording, options, 5, {}, threads)}));
    };
    const std::string alone = figures(1);
    for (const int threads : {2, 3, 8}) {  // fewer than texts, as many, and more
      EXPECT_EQ(figures(threads), alone) << threads;
    }
    // It is able to fail.
    EXPECT_NE(
        to_csv(study::replay_csv({study::replay_all(recording, options, 5, [] { return true; })})),
        alone);
  }
}

TEST_F(Replay, TextsThatStopLeavesOutAreNotSummed) {
  Recording recording = recorded(record_options(0.9, 16, 8), 3);
  GenerateOptions options;
  options.speculation = Dyspec{4};
  int asked = 0;
  const auto row = study::replay_all(recording, options, 2, [&] { return ++asked > 2; });
  recording.texts.pop_back();
  const auto two = study::replay_all(recording, options, 2);
  EXPECT_EQ(row.steps, two.steps);
  EXPECT_EQ(row.accepted_length.value, two.accepted_length.value);
}

TEST_F(Replay, RefusesWhatItCannotJudge) {
  const Recording recording = recorded(record_options(0.9, 8, 4), 1);
  const auto refusal = [&](auto change) {
    GenerateOptions options;
    options.speculation = Dyspec{4};
    change(options);
    return error_of([&] { Replayer(recording, options); }, ErrorKind::usage);
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_NE(refusal([](auto& o) { o.speculation = Dyspec{}; }).find("needs a tree-size"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.speculation = Plain{}; }).find("grows no tree"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) {
              o.speculation = DyspecThreshold{0.0, 4};
            }).find("threshold"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) {
              o.speculation = ExpandRerank{4};
              o.acceptance = Acceptance::rejection;
            }).find("bias"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.speculation = Dyspec{3000}; }), "");
  EXPECT_EQ(refusal([](auto& o) { o.lookup = Lookup::text; }), "");
  EXPECT_NE(refusal([](auto& o) { o.use_draft = false; }).find("grows no tree"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.lookup = Lookup::engine; }).find("use lookup text"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) {
              o.lookup = Lookup::text;
              o.speculation = Sequoia{4};
            }).find("the draft's children alone"),
            std::string::npos);
  Recording without_prompts = recording;
  without_prompts.texts[0].prompt_ids.clear();
  GenerateOptions looks_up;
  looks_up.speculation = Dyspec{4};
  EXPECT_EQ(error_of([&] { Replayer(without_prompts, looks_up); }), "");
  looks_up.lookup = Lookup::text;
  EXPECT_NE(error_of([&] { Replayer(without_prompts, looks_up); }, ErrorKind::usage)
                .find("recordings of version 3 lack; record anew"),
            std::string::npos);
}

TEST(ReplayTable, ShareOfNothingDraftedIsNoNumber) {
  study::ReplayRow row;
  row.policy = "chain";
  row.acceptance = "greedy";
  row.requested_size = 4;
  row.accepted_share.value = std::nan("");
  const std::string table = to_text(study::replay_table({row}));
  EXPECT_EQ(table.find("nan"), std::string::npos) << table;
  EXPECT_NE(table.find("  -  "), std::string::npos) << table;
  EXPECT_EQ(to_csv(study::replay_csv({row})).find("nan"), std::string::npos);
  row.accepted_share.value = 0.25;
  EXPECT_EQ(to_text(study::replay_table({row})).find("  -  "), std::string::npos);
}

// A text of one token, which came with its prompt.
TEST_F(Replay, WithoutAStepThereAreNoFigures) {
  study::RecordOptions options = record_options(0.9, 8, 4);
  options.generate.max_new_tokens = 1;
  const Recording recording = recorded(options, 2);
  GenerateOptions setting;
  setting.speculation = Dyspec{4};
  const study::ReplayRow row = study::replay_all(recording, setting, 2);
  EXPECT_EQ(row.steps, 0);
  EXPECT_EQ(to_text(study::replay_table({row})).find("nan"), std::string::npos);
  EXPECT_EQ(to_csv(study::replay_csv({row})).find("nan"), std::string::npos);
}

// Sequoia's tree for a text is planned for the acceptance that the other texts show, counted here
// once more from steps of the replayer, and never by what the text itself shows.
TEST_F(Replay, SequoiaIsPlannedForTheRecordingsOwnAcceptance) {
  const Recording recording = recorded(record_options(0.9, 96, 8), 7);
  GenerateOptions options;
  options.speculation = Sequoia{12};
  const study::PlannedSettings planned = study::planned_settings(recording, options, 3, {});
  ASSERT_EQ(planned.settings.size(), 5u);
  GenerateOptions wide = options;
  wide.speculation = SpecInferWidths{{8, 1, 1, 1}};
  Replayer replayer(recording, wide);
  for (std::size_t part = 0; part < 5; ++part) {
    std::vector<std::int64_t> judged(8, 0), accepted(8, 0);
    for (std::size_t t = 0; t < recording.texts.size(); ++t) {
      if (t % 5 == part) continue;
      replayer.replay(recording.texts[t], 0, 3, [&](std::uint64_t, const ReplayedStep&) {
        const TokenTree& tree = replayer.tree();
        std::int32_t parent = 0;
        for (std::size_t depth = 0; parent >= 0; ++depth) {
          const auto& path = replayer.verdict().path;
          const std::int32_t next = depth < path.size() ? path[depth] : -1;
          for (std::int32_t n = 1; n < tree.nodes(); ++n) {
            if (tree.parent[n] != parent) continue;
            if (next >= 0 && tree.rank[n] > tree.rank[next]) continue;
            ++judged[static_cast<std::size_t>(tree.rank[n])];
            accepted[static_cast<std::size_t>(tree.rank[n])] += n == next ? 1 : 0;
          }
          parent = next;
        }
      });
    }
    std::vector<double> wanted = estimate_acceptance(accepted, judged);
    while (wanted.back() == 0.0) wanted.pop_back();
    EXPECT_EQ(std::get<Sequoia>(planned.settings[part].speculation).acceptance, wanted) << part;
  }
  const study::ReplayRow row = study::replay_all(recording, options, 3);
  EXPECT_NE(row.planned_for.find("the texts parted in 5"), std::string::npos) << row.planned_for;
  // One text has no others: it says so. A vector that is given stays.
  Recording one = recording;
  one.texts.resize(1);
  EXPECT_NE(study::planned_settings(one, options, 1, {}).planned_for.find("holds no other"),
            std::string::npos);
  std::get<Sequoia>(options.speculation).acceptance = {0.5, 0.2};
  EXPECT_TRUE(study::planned_settings(recording, options, 3, {}).planned_for.empty());
}

// A prompt of one token has nothing for the first token to come with: its steps begin there.
TEST_F(Replay, BeginsWhereRunsBegin) {
  Engine engine = Engine::load(pair_.options());
  const std::vector<std::vector<TokenId>> prompts = {{7}, {7, 9}, {7, 9, 11}};
  const Recording recording =
      through_file(record_all(engine, record_options(0.0, 64, 96), prompts));
  GenerateOptions setting = settings().front();
  setting.acceptance = Acceptance::coupled;
  Replayer replayer(recording, setting);
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    setting.stream = p;
    const std::int32_t first = p == 0 ? 0 : 1;
    EXPECT_EQ(steps_of(replayer, recording.texts[p], 0).front().position, first);
    EXPECT_EQ(real_steps(engine, prompts[p], setting).front().position, first);
  }
}

}  // namespace
}  // namespace coppice::testing
