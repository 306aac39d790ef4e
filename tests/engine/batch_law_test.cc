// Texts of one batch against the target's exact law: each by itself, and each pair of them, whose
// joint law is the product. Significance 1e-9 a comparison (reference/statistics.h), of which there
// are at most 64 for each batch. Faults are planted that the same comparisons must notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "engine/access.h"
#include "engine/batch.h"
#include "engine/law_prices.h"
#include "engine/sampled_law.h"
#include "planted/planted.h"
#include "reference/pass_faults.h"
#include "reference/quick.h"
#include "reference/random_tokens.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

struct LawText {
  std::string name;
  std::vector<TokenId> prompt;
  Speculation speculation;
  Acceptance acceptance = Acceptance::rejection;
  SamplingParams sampling;
};

GenerateOptions options_of(const LawText& text) {
  GenerateOptions options;
  options.max_new_tokens = 4;
  options.speculation = text.speculation;
  options.acceptance = text.acceptance;
  options.sampling = text.sampling;
  return options;
}

// The law says which tokens top-p keeps, so that a device that rounds must keep the same ones. With
// 0.8, sums of probabilities are at least 0.019 ("filters") and 0.006 away from it, after any text;
// with 0.9, 0.006 and 0.001, a GPU once drew tokens in BF16 that the law leaves out.
std::vector<LawText> mixed_texts() {
  constexpr auto rejection = Acceptance::rejection, coupled = Acceptance::coupled;
  const auto sampling = [](double temperature, std::int32_t top_k = 0, double top_p = 1.0,
                           double penalty = 1.0) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.repetition_penalty = penalty;
    return params;
  };
  return {
      {"dyspec 8", {1, 4, 2, 5}, Dyspec{8}, rejection, sampling(1.0)},
      {"automatic, coupled, penalty", {3, 5, 5}, Dyspec{}, coupled, sampling(0.7, 0, 1.0, 1.5)},
      {"chain, top-p", {2}, Chain{3}, rejection, sampling(1.5, 0, 0.8)},
      {"threshold, coupled, penalty",
       {4, 1, 1, 3, 2, 2, 5},
       DyspecThreshold{0.1, 12},
       coupled,
       sampling(1.0, 0, 1.0, 1.4)},
      {"plain, top-k", {5, 3, 4, 4, 1, 2}, Plain{}, rejection, sampling(0.5, 4)},
      {"custom, penalty", {1, 1}, two_of_each(6), rejection, sampling(1.2, 0, 1.0, 1.8)},
      {"automatic, filters", {2, 4, 4, 3, 1}, Dyspec{}, rejection, sampling(0.8, 4, 0.8, 1.3)},
      {"plain, coupled", {5, 1, 2, 3, 3, 4, 1}, Plain{}, coupled, sampling(2.0)},
  };
}

using Three = std::array<TokenId, 3>;

std::size_t index_of(const Three& tokens, std::size_t count = 3) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < count; ++i) {
    index = index * law_vocab + static_cast<std::size_t>(tokens[i]);
  }
  return index;
}

// Whether what is asserted was there: means over texts.
struct Exercised {
  double accepted = 0.0, batch = 0.0, cached = 0.0;
  std::int64_t preempted = 0;
};

// Three tokens of each of the requests, which are written by one call.
std::vector<Three> first_three(Engine& engine, const std::vector<Request>& requests,
                               Exercised* exercised = nullptr) {
  std::vector<Three> all(requests.size());
  engine.generate(requests, [&](std::size_t index, Outcome& outcome) {
    const Generation g = only(outcome);
    outcome = {};  // it may be moved from: a long list costs no memory
    ASSERT_GE(g.tokens.size(), 4u);
    std::copy_n(g.tokens.begin(), 3, all[index].begin());
    if (exercised == nullptr) return;
    exercised->accepted += g.statistics.accepted_length / static_cast<double>(requests.size());
    exercised->batch += g.statistics.batch_mean / static_cast<double>(requests.size());
    exercised->cached += g.statistics.cached_tokens / static_cast<double>(requests.size());
    exercised->preempted += g.statistics.preemptions;
  });
  return all;
}

// Draw by draw, text by text.
std::vector<Request> requests_of(const std::vector<LawText>& texts, int draws,
                                 std::int32_t new_tokens = 4) {
  std::vector<Request> requests;
  for (int draw = 0; draw < draws; ++draw) {
    for (std::size_t t = 0; t < texts.size(); ++t) {
      requests.push_back(request_of(texts[t].prompt, options_of(texts[t])));
      requests.back().options.max_new_tokens = new_tokens;
      requests.back().options.seed = 1000 + static_cast<std::uint64_t>(draw);
      requests.back().options.stream = t;
    }
  }
  return requests;
}

Fit fit_of_text(const std::vector<Three>& drawn, std::size_t texts, std::size_t t,
                const std::vector<double>& law) {
  std::vector<std::int64_t> counts(law.size(), 0);
  for (std::size_t i = t; i < drawn.size(); i += texts) ++counts[index_of(drawn[i])];
  return compare(counts, law);
}

// Compares two tokens of each, in 36 times 36 cells.
Fit fit_of_pair(const std::vector<Three>& drawn, std::size_t texts, std::size_t a, std::size_t b,
                const std::vector<double>& law_a, const std::vector<double>& law_b) {
  constexpr std::size_t two = law_vocab * law_vocab;
  std::array<double, two> of_a = {}, of_b = {};
  for (std::size_t i = 0; i < law_a.size(); ++i) {
    of_a[i / law_vocab] += law_a[i];
    of_b[i / law_vocab] += law_b[i];
  }
  std::vector<double> product;
  for (const double pa : of_a) {
    for (const double pb : of_b) product.push_back(pa * pb);
  }
  std::vector<std::int64_t> counts(product.size(), 0);
  for (std::size_t i = 0; i + texts <= drawn.size(); i += texts) {
    ++counts[index_of(drawn[i + a], 2) * two + index_of(drawn[i + b], 2)];
  }
  return compare(counts, product);
}

constexpr int draws = sanitized ? 100 : quick ? 3000 : 6000;
constexpr int faulty_draws = sanitized ? 0 : 1500;  // no fault is planted there (sampled_law.h)

class BatchLaw : public ::testing::Test {
 protected:
  BatchLaw() {
    load_.cost_table = write_law_prices(pair_);
    load_.max_sequences = on_cuda() ? 64 : 8;
    find_laws();
  }
  void find_laws() {
    laws_.clear();
    for (const LawText& text : texts_) {
      laws_.push_back(exact_law(pair_.path() / "target", options_of(text), text.prompt));
    }
  }
  /// How many of the texts do not fit their laws.
  std::size_t misfits(const std::vector<Three>& drawn) const {
    std::size_t count = 0;
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      if (!fit_of_text(drawn, texts_.size(), t, laws_[t]).fits) ++count;
    }
    return count;
  }

  Exercised expect_laws(Engine& engine, int count, std::int32_t new_tokens = 4) const {
    Exercised exercised;
    const std::vector<Three> drawn =
        first_three(engine, requests_of(texts_, count, new_tokens), &exercised);
    std::cout << exercised.batch << " texts a step, accepted length " << exercised.accepted << ", "
              << exercised.cached << " tokens cached, " << exercised.preempted << " preempted\n";
    EXPECT_GT(exercised.batch, 1.5);
    EXPECT_GT(exercised.accepted, 1.1);
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      const Fit fit = fit_of_text(drawn, texts_.size(), t, laws_[t]);
      std::cout << "[ " << texts_[t].name << " ] " << fit.text() << "\n";
      EXPECT_TRUE(fit.fits) << texts_[t].name << ": " << fit.text();
      for (std::size_t u = 0; u < t; ++u) {
        const Fit joint = fit_of_pair(drawn, texts_.size(), u, t, laws_[u], laws_[t]);
        EXPECT_TRUE(joint.fits) << texts_[u].name << " and " << texts_[t].name << ": "
                                << joint.text();
      }
    }
    expect_nothing_leaked(engine);
    return exercised;
  }

  const TinyPair pair_{law_shape(5), 0.4};
  EngineOptions load_ = pair_.options();
  std::vector<LawText> texts_ = mixed_texts();
  std::vector<std::vector<double>> laws_;
};

TEST_F(BatchLaw, EachTextFitsItsOwnAndPairsAreIndependent) {
  Engine engine = Engine::load(load_);
  expect_laws(engine, draws);
}

// Rows of a pass for one or two trees: automatic sizes are cut by what neighbours take, and texts
// are left out of steps.
TEST_F(BatchLaw, WherePassesHaveFewRows) {
  load_.max_tree_size = 12;
  load_.max_batch_rows = 14;
  Engine engine = Engine::load(load_);
  expect_laws(engine, draws / 2);
}

// Texts that share a long beginning, in memory for a part of them: they begin in KV of others, some
// leave their own to the tree and come back.
TEST_F(BatchLaw, WhereTextsShareAndMemoryIsShort) {
  const std::vector<TokenId> all = random_tokens(66, law_vocab, 2),
                             some = random_tokens(66, law_vocab, 3);
  for (std::size_t t = 0; t < texts_.size(); ++t) {
    std::vector<TokenId>& prompt = texts_[t].prompt;
    if (t % 2 == 0) prompt.insert(prompt.begin(), some.begin(), some.end());
    prompt.insert(prompt.begin(), all.begin(), all.end());
    // What a device that rounds keeps of these is not known.
    texts_[t].sampling.top_p = 1.0;
    texts_[t].sampling.top_k = 0;
  }
  find_laws();
  load_.kv_tokens = 260;
  load_.max_tree_size = 12;
  load_.max_sequences = 32;
  Engine engine = Engine::load(load_);
  const Exercised exercised = expect_laws(engine, draws / 4, 16);
  EXPECT_GT(exercised.cached, 60.0);
  EXPECT_GT(exercised.preempted, sanitized ? 0 : draws / 12);
  EXPECT_GT(engine.cache().evicted_tokens, 1000);
}

// Branches of one text that are written side by side.
TEST_F(BatchLaw, SiblingsOfAForkAreIndependent) {
  Engine engine = Engine::load(load_);
  Sequence trunk = engine.new_sequence();
  GenerateOptions plain;
  plain.max_new_tokens = 3;
  trunk.generate(random_tokens(80, law_vocab, 4), plain);
  const GenerateOptions options = options_of(texts_[0]);
  const std::vector<double> law =
      exact_law(pair_.path() / "target", options, {trunk.tokens().begin(), trunk.tokens().end()});
  const auto draw = [&](int count, bool one_stream) {
    std::vector<Three> drawn;
    while (std::ssize(drawn) < count) {
      std::vector<Sequence> branches;
      for (int i = 0; i < 32; ++i) branches.push_back(trunk.fork());
      std::vector<Request> requests(branches.size());
      for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].sequence = &branches[i];
        requests[i].options = options;
        requests[i].options.stream = (drawn.size() + i) / (one_stream ? 2 : 1);
      }
      const std::vector<Three> more = first_three(engine, requests);
      drawn.insert(drawn.end(), more.begin(), more.end());
    }
    return drawn;
  };
  const std::vector<Three> drawn = draw(2 * draws, false);
  const Fit fit = fit_of_text(drawn, 1, 0, law), joint = fit_of_pair(drawn, 2, 0, 1, law, law);
  std::cout << "branches " << fit.text() << ", pairs " << joint.text() << "\n";
  EXPECT_TRUE(fit.fits) << fit.text();
  EXPECT_TRUE(joint.fits) << joint.text();
  if (faulty_draws == 0) return;
  EXPECT_FALSE(fit_of_pair(draw(2 * faulty_draws, true), 2, 0, 1, law, law).fits)
      << "two branches with one stream were not noticed";
}

// Sample i and sample i + 1, as they stand side by side.
TEST_F(BatchLaw, SamplesOfOnePromptAreIndependent) {
  Engine engine = Engine::load(load_);
  for (const std::size_t t : {std::size_t{0}, std::size_t{3}}) {
    Request request = request_of(texts_[t].prompt, options_of(texts_[t]));
    request.n = 2 * draws;
    const Outcome outcome = engine.generate({&request, 1}).front();
    ASSERT_EQ(error_of(outcome), "");
    std::vector<Three> drawn(outcome.samples.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      std::copy_n(outcome.samples[i].tokens.begin(), 3, drawn[i].begin());
    }
    const Fit fit = fit_of_text(drawn, 1, 0, laws_[t]);
    const Fit joint = fit_of_pair(drawn, 2, 0, 1, laws_[t], laws_[t]);
    std::cout << "[ " << texts_[t].name << " ] samples " << fit.text() << ", pairs " << joint.text()
              << "\n";
    EXPECT_TRUE(fit.fits) << fit.text();
    EXPECT_TRUE(joint.fits) << joint.text();

    if (faulty_draws == 0) continue;
    std::vector<Request> twins(2 * faulty_draws, request_of(texts_[t].prompt, request.options));
    for (std::size_t i = 0; i < twins.size(); ++i) twins[i].options.stream = i / 2;
    EXPECT_FALSE(fit_of_pair(first_three(engine, twins), 2, 0, 1, laws_[t], laws_[t]).fits)
        << "two samples with one stream were not noticed";
  }
}

// Texts of equal noise, of which one's tokens would say what the other's are: they grow apart, so
// that each is as if the other were not there. Automatic trees of the others share rows and passes.
TEST_F(BatchLaw, TwinsGrowApart) {
  Engine engine = Engine::load(load_);
  const LawText& automatic = texts_[6];
  constexpr std::size_t group = 4;  // twins, and two more
  const auto requests_of_groups = [&](std::size_t groups) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < group * groups; ++i) {
      requests.push_back(request_of(automatic.prompt, options_of(automatic)));
      requests.back().options.seed = 1000 + i / group;
      requests.back().options.stream = std::max<std::size_t>(i % group, 1);
    }
    return requests;
  };
  // Trees of one step fit the room that steps of others leave. Which texts those are depends on
  // when a text begins, so twins are compared if they began in the same step.
  struct Found {
    std::vector<Three> drawn;
    std::size_t side_by_side = 0, same = 0, others_differ = 0;
    double nodes = 0.0;  ///< of a step's tree, on average
  };
  const auto write = [&](Engine& on, std::size_t count) {
    const std::vector<Request> requests = requests_of_groups(count);
    // The draft has seen the prompt: nobody is sent ahead to find out what it is worth.
    const Prefix begun_with = on.prefix(automatic.prompt);
    Found found;
    std::vector<double> sizes(requests.size());
    std::map<std::uint64_t, std::vector<std::int64_t>> begun;  // twins, by seed: in which passes
    inside(on).observer = [&](const StepView& view) {
      if (view.key.sequence != 1 || view.key.step > 0) return;
      begun[view.key.seed].push_back(inside(on).target_runner->passes());
    };
    found.drawn.resize(requests.size());
    on.generate(requests, [&](std::size_t index, Outcome& outcome) {
      const Generation g = only(outcome);
      std::copy_n(g.tokens.begin(), 3, found.drawn[index].begin());
      sizes[index] = g.statistics.tree_size_mean;
      found.nodes += sizes[index] / static_cast<double>(requests.size());
    });
    inside(on).observer = {};
    for (std::size_t i = 0; i < requests.size(); i += group) {
      found.others_differ += found.drawn[i] != found.drawn[i + 2];
      const std::vector<std::int64_t>& passes = begun[requests[i].options.seed];
      if (passes.at(0) != passes.at(1)) continue;
      ++found.side_by_side;
      found.same += found.drawn[i] == found.drawn[i + 1] && sizes[i] == sizes[i + 1];
    }
    return found;
  };
  constexpr std::size_t groups = sanitized ? 25 : 1500;
  const Found found = write(engine, groups);
  std::cout << found.nodes << " nodes in a tree, " << found.side_by_side << " of " << groups
            << " twins side by side, " << found.same << " of these the same\n";
  EXPECT_GT(found.nodes, 1.0) << "texts that do not speculate have nothing to grow";
  EXPECT_GT(2 * found.side_by_side, groups);
  // (On a GPU products of other rows are rounded otherwise.)
  if (!on_cuda()) {
    EXPECT_EQ(found.same, found.side_by_side);
  }
  EXPECT_GT(2 * found.others_differ, groups);
  for (std::size_t t = 0; t < group; ++t) {
    const Fit fit = fit_of_text(found.drawn, group, t, laws_[6]);
    EXPECT_TRUE(fit.fits) << t << ": " << fit.text();
  }
  if (on_cuda() || faulty_draws == 0) return;

  // Where the heap has too little room for all, the first twin takes what the second one lacks.
  load_.max_tree_size = 12;
  load_.max_batch_rows = 14;
  Engine small = Engine::load(load_);
  for (const Fault fault : {Fault::none, Fault::twins_grow_together}) {
    const Planted planted(fault);
    const Found of_few = write(small, groups);
    std::cout << "few rows: " << of_few.side_by_side << " side by side, " << of_few.same
              << " of these the same\n";
    if (fault == Fault::none) {
      EXPECT_EQ(of_few.same, of_few.side_by_side);
    } else {
      EXPECT_LT(of_few.same, of_few.side_by_side * 95 / 100) << "twins in the common heap";
    }
  }
}

using BatchLawPlanted = BatchLaw;

TEST_F(BatchLawPlanted, WhatATextTakesFromItsNeighbourIsNoticed) {
  if (faulty_draws == 0) GTEST_SKIP() << "long statistics";
  Engine engine = Engine::load(load_);
  const auto drawn_with = [&](const auto& change) {
    std::vector<Request> requests = requests_of(texts_, faulty_draws);
    for (std::size_t i = 0; i < requests.size(); i += texts_.size()) {
      for (std::size_t t = 0; t + 1 < texts_.size(); ++t) {
        change(requests[i + t].options, requests[i + t + 1].options);
      }
    }
    return first_three(engine, requests);
  };
  EXPECT_EQ(misfits(drawn_with([](GenerateOptions&, GenerateOptions&) {})), 0u);
  EXPECT_GT(misfits(drawn_with([](GenerateOptions& mine, GenerateOptions& next) {
              std::swap(mine.sampling.temperature, next.sampling.temperature);
            })),
            3u);
  EXPECT_GT(misfits(drawn_with([](GenerateOptions& mine, GenerateOptions& next) {
              std::swap(mine.sampling.repetition_penalty, next.sampling.repetition_penalty);
            })),
            1u);
  // Shared noise is by position: texts 3 and 7 are equally long.
  const std::vector<Three> one_noise =
      drawn_with([](GenerateOptions& mine, GenerateOptions& next) { next.stream = mine.stream; });
  EXPECT_EQ(misfits(one_noise), 0u) << "noise shows in pairs alone";
  EXPECT_FALSE(fit_of_pair(one_noise, texts_.size(), 3, 7, laws_[3], laws_[7]).fits);
}

// Positions are left out: a layer of random weights hardly looks at them. On a GPU so are two more:
// by a neighbour's logits verdicts name nodes that their trees do not have, and its noise shows in
// few pairs. several_texts_test.cc and cuda/sampler_texts_test.cc notice them.
TEST_F(BatchLawPlanted, FaultsOfSharedPassesAreNoticed) {
  if (faulty_draws == 0) GTEST_SKIP() << "long statistics";
  Engine engine = Engine::load(load_);
  EngineAccess access(engine);
  const std::vector<Request> requests = requests_of(texts_, faulty_draws);
  for (const PassFault fault : {PassFault::seen_by_neighbour, PassFault::slots_of_neighbour,
                                PassFault::logits_of_neighbour}) {
    if (access.judges_on_device() && fault == PassFault::logits_of_neighbour) continue;
    access.change_passes(faulty_passes(fault));
    EXPECT_GT(misfits(first_three(engine, requests)), 0u) << static_cast<int>(fault);
  }
  access.change_passes({});
  if (access.judges_on_device()) {
    for (const DeviceFault fault :
         {DeviceFault::neighbours_parameters, DeviceFault::neighbours_counts}) {
      access.plant(fault);
      EXPECT_GT(misfits(first_three(engine, requests)), 0u) << static_cast<int>(fault);
    }
    access.plant(DeviceFault::none);
  }
  EXPECT_EQ(misfits(first_three(engine, requests)), 0u);
}

}  // namespace
}  // namespace coppice::testing
