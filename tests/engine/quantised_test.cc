// Engines on quantised weights: a rounded target's texts have its own law, and what is rounded is
// said. (Products are tested in kernels/, the shipped pair's identity in identity_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "engine/sampled_law.h"
#include "models/requantised.h"
#include "sizing/cost_table.h"

namespace coppice::testing {
namespace {

TinyModel wide_law_shape() {
  TinyModel model = law_shape(5);
  model.intermediate_size = 64;  // all rows are whole blocks
  model.logit_scale = 3.0;
  return model;
}

TEST(QuantisedEngine, TextsHaveTheRoundedTargetsLaw) {
  if (on_cuda()) GTEST_SKIP() << "the law is that of products in f32";
  const TinyPair pair(wide_law_shape(), 0.4);
  EngineOptions load = pair.options();
  load.target_weights = WeightRounding::q4_0;
  load.draft_weights = WeightRounding::q8_0;
  Engine engine = Engine::load(load);
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
    options.acceptance = acceptance;
    options.speculation = Dyspec{6};
    double accepted = 0.0;
    const Fit fit = fit_of_three(engine, pair.path() / "target", options, &accepted);
    std::cout << "[ " << name_of(acceptance) << " ] " << fit.text() << ", accepted length "
              << accepted << "\n";
    EXPECT_TRUE(fit.fits) << fit.text();
    EXPECT_GT(accepted, 1.05);
  }
}

TEST(QuantisedEngine, TextsHaveTheLawOfFp8AndInt4) {
  if (on_cuda()) GTEST_SKIP() << "the law is that of products in f32";
  TinyModel model = wide_law_shape();
  model.hidden_size = 64;  // blocks of fp8
  const TinyPair pair(model, 0.4);
  EngineOptions load = pair.options();
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.speculation = Dyspec{6};
  for (const auto& [target, draft] : {std::pair{WeightRounding::fp8, WeightRounding::int4},
                                      {WeightRounding::int4, WeightRounding::fp8}}) {
    load.target_weights = target;
    load.draft_weights = draft;
    Engine engine = Engine::load(load);
    double accepted = 0.0;
    const Fit fit = fit_of_three(engine, pair.path() / "target", options, &accepted);
    EXPECT_TRUE(fit.fits) << name_of(target) << ": " << fit.text();
    EXPECT_GT(accepted, 1.05);
  }
}

// The test above notices a target that is not the one it says: here, as it is stored.
TEST(QuantisedEngine, AnotherTargetsLawIsNoticed) {
  if (on_cuda() || sanitized) GTEST_SKIP() << "of few draws no fault is seen";
  const TinyPair pair(wide_law_shape(), 0.4);
  EngineOptions load = pair.options();
  load.target_weights = WeightRounding::q4_0;
  Engine engine = Engine::load(load);
  inside(engine).options.target_weights = WeightRounding::keep;  // what the law is computed for
  GenerateOptions options;
  options.sampling.temperature = 1.0;
  options.speculation = Dyspec{6};
  const Fit fit = fit_of_three(engine, pair.path() / "target", options);
  std::cout << "as it is stored: " << fit.text() << "\n";
  EXPECT_FALSE(fit.fits);
}

TEST(QuantisedEngine, SaysWhatIsRounded) {
  const TinyPair pair(wide_law_shape());
  const std::vector<TokenId> prompt = {1, 4, 2};
  GenerateOptions request;
  request.max_new_tokens = 6;
  request.ignore_eos = true;
  request.speculation = Dyspec{4};
  EngineOptions load = pair.options();
  load.cpu_dtype = CpuDtype::automatic;
  EXPECT_EQ(Engine::load(load).generate(prompt, request).used.target_weights, "");
  load.target_weights = WeightRounding::q8_0;
  load.draft_weights = WeightRounding::q4_k;  // rows of 32: q5_0, and q8_0 of the tables
  Engine engine = Engine::load(load);
  const Used used = engine.generate(prompt, request).used;
  EXPECT_EQ(used.target_weights, "Q8_0");
  EXPECT_EQ(used.draft_weights, "Q5_0, Q8_0");
  EXPECT_EQ(used.dtype, on_cuda() ? "bf16" : "int8");
  load.cpu_dtype = CpuDtype::f32;
  EXPECT_EQ(Engine::load(load).generate(prompt, request).used.dtype, on_cuda() ? "bf16" : "f32");
  // Products with fp8 are in f32.
  TinyModel wide = wide_law_shape();
  wide.hidden_size = 64;
  const TinyPair wide_pair(wide);
  load = wide_pair.options();
  load.cpu_dtype = CpuDtype::automatic;
  load.target_weights = load.draft_weights = WeightRounding::fp8;
  const Used floats = Engine::load(load).generate(prompt, request).used;
  EXPECT_EQ(floats.target_weights, "FP8");
  EXPECT_EQ(floats.dtype, on_cuda() ? "bf16" : "f32");
  testing::expect_nothing_leaked(engine);
}

// Costs of other weights are others, so their tables are kept apart.
TEST(QuantisedEngine, CostsAreKeptByFormats) {
  const TinyPair pair(wide_law_shape());
  const auto fingerprint = [&](WeightRounding target, CpuDtype dtype) {
    EngineOptions load = pair.options();
    load.target_weights = target;
    load.cpu_dtype = dtype;
    Engine engine = Engine::load(load);
    return cost_fingerprint(*inside(engine).target.model, *inside(engine).draft.model);
  };
  const std::string plain = fingerprint(WeightRounding::keep, CpuDtype::f32);
  EXPECT_EQ(fingerprint(WeightRounding::keep, CpuDtype::automatic), plain);
  const std::string rounded = fingerprint(WeightRounding::q8_0, CpuDtype::f32);
  EXPECT_NE(rounded, plain);
  EXPECT_NE(fingerprint(WeightRounding::q4_0, CpuDtype::f32), rounded);
  if (on_cuda()) return;
  EXPECT_NE(fingerprint(WeightRounding::q8_0, CpuDtype::automatic), rounded);
}

TEST(Requantised, TakesWhatFitsRows) {
  TinyModel model;
  model.hidden_size = 256;
  model.intermediate_size = 96;
  model.head_dim = 64;
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), model);
  const auto formats = [&](WeightFormat asked) {
    const auto source = requantised(open_weights(folder.path()), asked);
    std::vector<std::string> found;
    for (const char* name : {"lm_head.weight", "model.layers.0.self_attn.q_proj.weight",
                             "model.layers.0.mlp.down_proj.weight", "model.norm.weight"}) {
      const StoredTensor& tensor = *source->find(name);
      found.push_back(tensor.dtype);
      EXPECT_EQ(tensor.bytes, bytes_of(format_named(tensor.dtype).value(), tensor.elements()));
    }
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(formats(WeightFormat::q4_k), (Names{"Q6_K", "Q4_K", "Q5_0", "F32"}));
  EXPECT_EQ(formats(WeightFormat::q6_k), (Names{"Q6_K", "Q6_K", "Q8_0", "F32"}));
  EXPECT_EQ(formats(WeightFormat::q8_0), (Names{"Q8_0", "Q8_0", "Q8_0", "F32"}));
  EXPECT_EQ(formats(WeightFormat::q4_0), (Names{"Q4_0", "Q4_0", "Q4_0", "F32"}));
  EXPECT_EQ(formats(WeightFormat::int4), (Names{"INT4", "INT4", "INT4", "F32"}));
  EXPECT_EQ(formats(WeightFormat::fp8), (Names{"FP8", "FP8", "Q8_0", "F32"}));
}

// Whole tensors and pieces of them are rounded alike, within a step of their scale.
TEST(Requantised, ReadsPiecesOfTheRoundedTensor) {
  TinyModel model;
  model.hidden_size = 256;
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), model);
  const auto plain = open_weights(folder.path());
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const StoredTensor& stored = *plain->find(name);
  std::vector<float> values(stored.elements());
  plain->read(name, 0, std::as_writable_bytes(std::span(values)));
  const auto largest = std::abs(*std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  for (const auto& [format, part] :
       std::vector<std::pair<WeightFormat, float>>{{WeightFormat::q8_0, 0.005f},
                                                   {WeightFormat::q6_k, 0.03f},
                                                   {WeightFormat::q4_k, 0.12f},
                                                   {WeightFormat::q4_0, 0.13f},
                                                   {WeightFormat::int4, 0.12f},
                                                   {WeightFormat::fp8, 0.036f}}) {
    SCOPED_TRACE(name_of(format));
    const auto source = requantised(open_weights(folder.path()), format);
    const StoredTensor& tensor = *source->find(name);
    std::vector<std::byte> whole(tensor.bytes);
    source->read(name, 0, whole);
    const std::uint64_t row = tensor.bytes / tensor.shape[0];
    for (std::uint64_t begin = 0; begin < tensor.bytes; begin += 3 * row) {
      std::vector<std::byte> some(std::min(3 * row, tensor.bytes - begin));
      source->read(name, begin, some);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), whole.begin() + static_cast<long>(begin)));
    }
    std::vector<float> rounded(values.size());
    dequantise(format, whole, rounded.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(rounded[i], values[i], part * largest) << i;
    }
    EXPECT_NE(rounded, values);
  }
}

}  // namespace
}  // namespace coppice::testing
