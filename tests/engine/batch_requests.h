// Requests that differ in everything, for a pair of 96 tokens.
#pragma once

#include <random>
#include <vector>

#include "engine/batch.h"
#include "reference/random_tokens.h"

namespace coppice::testing {

/// By what a text does not depend on what it is written beside.
enum class Rule {
  greedy,       ///< tokens do not depend on trees
  coupled,      ///< nor here
  fixed_trees,  ///< rejection, whose trees are the same whatever else the engine writes
};

inline const char* name_of(Rule rule) {
  return rule == Rule::greedy ? "greedy" : rule == Rule::coupled ? "coupled" : "fixed_trees";
}

inline Speculation speculation_of(Rule rule, std::size_t turn) {
  static const StaticTree shape = {{{0}, {1}, {2}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}};
  static const std::vector<Speculation> fixed = {
      Dyspec{6, true},    Chain{4},      Plain{}, shape, SpecInferWidths{{2, 2, 1}},
      Sequoia{12, 0, {}}, two_of_each(6)};
  static const std::vector<Speculation> any = {
      Dyspec{6}, Chain{4},        Plain{}, DyspecThreshold{0.05, 12}, two_of_each(6), Dyspec{},
      shape,     ExpandRerank{6}, Chain{}, Sequoia{12, 0, {}}};
  const auto& turns = rule == Rule::fixed_trees ? fixed : any;
  return turns[turn % turns.size()];
}

/// Prompts of 1 to 20 tokens, 1 to `longest` new ones. `stops`: some have stop texts.
inline std::vector<Request> mixed_requests(std::size_t count, Rule rule, std::uint32_t seed,
                                           int longest = 40, bool stops = false) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateOptions options;
    options.max_new_tokens =
        1 + static_cast<std::int32_t>(random() % static_cast<unsigned>(longest));
    options.speculation = speculation_of(rule, random());
    options.acceptance = rule == Rule::coupled ? Acceptance::coupled : Acceptance::rejection;
    options.seed = 7 + random() % 2;
    options.stream = i;
    if (rule != Rule::greedy) options.sampling.temperature = 0.5 + 0.3 * (random() % 4);
    if (random() % 4 == 0) options.sampling.top_k = 20;
    if (random() % 4 == 0) options.sampling.top_p = 0.8;
    if (random() % 3 == 0) options.sampling.repetition_penalty = 1.3;
    options.logprobs = random() % 3 == 0;
    options.ignore_eos = random() % 2 == 0;
    if (stops && random() % 2 == 0) {
      for (int stop = 0; stop < 3; ++stop) {
        options.stop.emplace_back(1 + random() % 2, static_cast<char>('A' + random() % 26));
      }
    }
    requests.push_back(request_of(random_tokens(1 + random() % 20, 96, random()), options));
  }
  return requests;
}

/// Equal but for the rounding of logarithms of probabilities.
inline void expect_equal(const Generation& mine, const Generation& other) {
  EXPECT_EQ(mine.tokens, other.tokens);
  EXPECT_EQ(mine.text, other.text);
  EXPECT_EQ(mine.finish_reason, other.finish_reason);
  EXPECT_EQ(mine.statistics.prompt_tokens, other.statistics.prompt_tokens);
  ASSERT_EQ(mine.logprobs.size(), other.logprobs.size());
  for (std::size_t i = 0; i < mine.logprobs.size(); ++i) {
    EXPECT_EQ(mine.logprobs[i].token, other.logprobs[i].token);
    EXPECT_NEAR(mine.logprobs[i].logprob, other.logprobs[i].logprob, 1e-4);  // exact_logits.h
  }
}

}  // namespace coppice::testing
