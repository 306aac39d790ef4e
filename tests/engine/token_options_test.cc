// Bias, stop tokens, least lengths and log-probabilities: what a request says of single tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch_requests.h"
#include "engine/lettered_pair.h"

namespace coppice::testing {
namespace {

const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
constexpr TokenId end_token = 2;  // of a TinyModel

class TokenOptions : public ::testing::Test {
 protected:
  void TearDown() override { expect_nothing_leaked(engine_); }

  static GenerateOptions greedy(std::int32_t tokens, Speculation speculation = Dyspec{8}) {
    GenerateOptions options;
    options.max_new_tokens = tokens;
    options.speculation = std::move(speculation);
    return options;
  }
  static std::vector<Speculation> speculations() { return {Plain{}, Dyspec{8}, Chain{4}}; }

  const LetteredPair pair_;
  Engine engine_ = Engine::load(pair_.options());
};

TEST_F(TokenOptions, ABiasForcesATokenAndForbidsIt) {
  for (const Speculation& speculation : speculations()) {
    GenerateOptions options = greedy(12, speculation);
    options.logit_bias = {{20, 100.0}};
    const Generation forced = engine_.generate(prompt, options);
    EXPECT_EQ(forced.tokens, std::vector<TokenId>(12, 20));
    EXPECT_EQ(forced.used.biased_tokens, 1);
    options.logit_bias = {};
    for (const TokenId token : engine_.generate(prompt, options).tokens) {
      bool known = false;
      for (const auto& [other, bias] : options.logit_bias) known = known || other == token;
      if (!known) options.logit_bias.emplace_back(token, -100.0);
    }
    for (const TokenId token : engine_.generate(prompt, options).tokens) {
      for (const auto& [forbidden, bias] : options.logit_bias) EXPECT_NE(token, forbidden);
    }
  }
}

TEST_F(TokenOptions, AStopTokenEndsTheTextAndIsNotShown) {
  const std::vector<TokenId> whole = engine_.generate(prompt, greedy(30)).tokens;
  ASSERT_GT(whole.size(), 6u);
  const TokenId stop = whole[5];
  const auto at = std::find(whole.begin(), whole.end(), stop);
  for (const Speculation& speculation : speculations()) {
    GenerateOptions options = greedy(30, speculation);
    options.ignore_eos = true;
    options.stop_tokens = {stop};
    options.logprobs = true;
    Sequence sequence = engine_.new_sequence();
    std::vector<TokenId> heard;
    const Generation g = sequence.generate(prompt, options, [&](const Piece& piece) {
      heard.insert(heard.end(), piece.tokens.begin(), piece.tokens.end());
      return true;
    });
    if (on_cuda()) continue;  // where tokens may nearly tie
    EXPECT_EQ(g.tokens, std::vector<TokenId>(whole.begin(), at));
    EXPECT_EQ(g.finish_reason, FinishReason::stop);
    EXPECT_EQ(heard, g.tokens);
    EXPECT_EQ(g.logprobs.size(), g.tokens.size());
    EXPECT_EQ(sequence.tokens().size(), prompt.size() + g.tokens.size());
  }
}

TEST_F(TokenOptions, ATextIsNoShorterThanItsLeastLength) {
  for (const Speculation& speculation : speculations()) {
    for (const double temperature : {0.0, 0.8}) {
      GenerateOptions options = greedy(30, speculation);
      options.sampling.temperature = temperature;
      options.logit_bias = {{end_token, 100.0}};
      options.min_new_tokens = 7;
      const Generation g = engine_.generate(prompt, options);
      EXPECT_EQ(g.tokens.size(), 7u);
      EXPECT_EQ(g.finish_reason, FinishReason::eos);
      EXPECT_EQ(g.used.min_new_tokens, 7);
      options.min_new_tokens = 0;
      EXPECT_EQ(engine_.generate(prompt, options).tokens.size(), 0u);
      options.ignore_eos = true;
      options.stop_tokens = {end_token};
      options.min_new_tokens = 9;
      EXPECT_EQ(engine_.generate(prompt, options).tokens.size(), 9u);
    }
  }
}

TEST_F(TokenOptions, ALeastLengthHoldsUnderAConstraint) {
  for (const Speculation& speculation : speculations()) {
    GenerateOptions options = greedy(30, speculation);
    options.constraint = Constraint::regex(engine_, "[ab]*");
    options.logit_bias = {{end_token, 100.0}};
    options.min_new_tokens = 8;
    const Generation g = engine_.generate(prompt, options);
    EXPECT_EQ(g.text.size(), 8u);
    EXPECT_EQ(g.finish_reason, FinishReason::eos);
    // What must end before, ends.
    options.constraint = Constraint::choice(engine_, std::vector<std::string>{"abc"});
    const Generation forced = engine_.generate(prompt, options);
    EXPECT_EQ(forced.text, "abc");
    EXPECT_EQ(forced.finish_reason, FinishReason::eos);
  }
}

TEST_F(TokenOptions, PiecesHaveTheLogprobsOfTheirTokens) {
  for (const std::int32_t top : {0, 1, 20}) {
    GenerateOptions options = greedy(24);
    options.logprobs = true;
    options.top_logprobs = top;
    options.stop = {"no such text"};  // text is held back, tokens are not
    std::vector<TokenLogprob> heard;
    const Generation g = engine_.generate(prompt, options, [&](const Piece& piece) {
      EXPECT_EQ(piece.logprobs.size(), piece.tokens.size());
      heard.insert(heard.end(), piece.logprobs.begin(), piece.logprobs.end());
      return true;
    });
    ASSERT_EQ(heard.size(), g.logprobs.size());
    ASSERT_EQ(heard.size(), g.tokens.size());
    for (std::size_t i = 0; i < heard.size(); ++i) {
      EXPECT_EQ(heard[i].token, g.tokens[i]);
      EXPECT_EQ(heard[i].logprob, g.logprobs[i].logprob);
      EXPECT_EQ(heard[i].top, g.logprobs[i].top);
      EXPECT_EQ(heard[i].top.size(), static_cast<std::size_t>(top));
      if (top > 0) {
        EXPECT_EQ(heard[i].top[0].first, g.tokens[i]);
      }
    }
  }
  GenerateOptions without = greedy(4);
  engine_.generate(prompt, without, [&](const Piece& piece) { return piece.logprobs.empty(); });
}

TEST_F(TokenOptions, WhatIsWrongIsSaid) {
  const auto refused = [&](const char* what, const std::function<void(GenerateOptions&)>& change) {
    GenerateOptions options = greedy(10);
    change(options);
    try {
      engine_.generate(prompt, options);
      ADD_FAILURE() << what << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bias : {infinity, -infinity, std::nan(""), 100.5}) {
    refused("logit-bias", [&](GenerateOptions& o) { o.logit_bias = {{1, bias}}; });
  }
  refused("token 96", [](GenerateOptions& o) { o.logit_bias = {{96, 1.0}}; });
  refused("twice", [](GenerateOptions& o) { o.logit_bias = {{4, 1.0}, {3, 1.0}, {4, 2.0}}; });
  refused("stop-tokens", [](GenerateOptions& o) { o.stop_tokens = {-1}; });
  refused("min-new-tokens", [](GenerateOptions& o) { o.min_new_tokens = -1; });
  refused("min-new-tokens", [](GenerateOptions& o) { o.min_new_tokens = 11; });
  refused("top-logprobs", [](GenerateOptions& o) { o.top_logprobs = 21; });
  refused("presence-penalty", [](GenerateOptions& o) { o.sampling.presence_penalty = 2.5; });
  refused("frequency-penalty",
          [](GenerateOptions& o) { o.sampling.frequency_penalty = std::nan(""); });
}

}  // namespace
}  // namespace coppice::testing
