// Speculation with models of every family (models/families): texts are those of the target alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "engine/near_tie.h"
#include "engine/pair.h"
#include "engine/sampled_law.h"
#include "reference/random_tokens.h"

namespace coppice::testing {
namespace {

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  static TinyModel model() { return tiny_families().at(GetParam()); }
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, model] : tiny_families()) all.push_back(name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(names()),
                         [](const auto& family) { return family.param; });

// Token for token, but where two scores nearly tie: logits of order 1 of sums in f32, as in
// exact_logits.h.
TEST_P(Families, TextsEqualThoseOfPlainDecoding) {
  if (on_cuda()) GTEST_SKIP() << "candidates of a random model nearly tie in bf16";
  constexpr std::int32_t new_tokens = 60;
  const TinyPair pair(model());
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.max_new_tokens = new_tokens;
  options.ignore_eos = true;
  options.logprobs = true;
  options.acceptance = Acceptance::coupled;
  double accepted = 0.0;
  for (const double temperature : {0.0, 0.8}) {
    options.sampling.temperature = temperature;
    for (const std::uint32_t seed : {1, 2, 3}) {
      const std::vector<TokenId> prompt = random_tokens(1 + 9 * seed, model().vocab_size, seed);
      options.seed = seed;
      options.speculation = Plain{};
      const Generation plain = engine.generate(prompt, options);
      for (const Speculation& speculation :
           std::vector<Speculation>{Dyspec{12}, Chain{4}, SpecInferWidths{{3, 2, 1}}}) {
        options.speculation = speculation;
        const Generation fast = engine.generate(prompt, options);
        accepted += fast.statistics.accepted_length / 18.0;
        ASSERT_EQ(fast.tokens.size(), plain.tokens.size());
        std::size_t same = 0;
        while (same < plain.tokens.size() && fast.tokens[same] == plain.tokens[same]) ++same;
        if (same == plain.tokens.size()) continue;
        EXPECT_LT(near_tie(options, prompt.size() + same, engine.vocab_size(), plain.logprobs[same],
                           fast.logprobs[same]),
                  2e-4)
            << name_of(speculation) << ", token " << same;
      }
    }
  }
  std::cout << "[ " << GetParam() << " ] accepted length " << accepted << "\n";
  EXPECT_GT(accepted, 1.05) << "speculation was not exercised";
}

TEST_P(Families, SampledTextsHaveTheTargetsLaw) {
  TinyModel spec = model();
  const TinyModel shape = law_shape(5);
  spec.vocab_size = shape.vocab_size;
  spec.logit_scale = shape.logit_scale;
  spec.bos_token = shape.bos_token;
  spec.eos_tokens = shape.eos_tokens;
  const TinyPair pair(spec);
  Engine engine = Engine::load(pair.options());
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.speculation = Dyspec{8};
  double accepted = 0.0;
  const Fit fit =
      fit_of_three(engine, pair.path() / "target", options, &accepted, std::min(usual_draws, 3000));
  std::cout << "[ " << GetParam() << " ] " << fit.text() << ", accepted length " << accepted
            << "\n";
  EXPECT_TRUE(fit.fits) << fit.text();
  EXPECT_GT(accepted, 1.05) << "speculation was not exercised";
}

}  // namespace
}  // namespace coppice::testing
