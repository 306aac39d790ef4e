// Engines whose models are split over ranks of the CPU. (Laws, identity, batches and forks of such
// engines: the programs of this folder with COPPICE_TEST_RANKS.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

GenerateOptions sixteen_tokens(double temperature) {
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.ignore_eos = true;
  options.sampling.temperature = temperature;
  options.acceptance = Acceptance::coupled;
  options.seed = 7;
  options.speculation = Dyspec{8};
  return options;
}

std::vector<TokenId> text_of(Engine& engine, const GenerateOptions& options) {
  return engine.generate(std::vector<TokenId>{3, 1, 4, 1, 5, 9}, options).tokens;
}

std::string refusal(const EngineOptions& options) {
  try {
    Engine::load(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "it loads";
}

class SplitEngine : public ::testing::Test {
 protected:
  static TinyModel shape() {
    TinyModel model;
    model.layers = 3;
    model.hidden_size = 256;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 64;  // whole blocks on each of two ranks
    model.intermediate_size = 512;
    return model;
  }
  EngineOptions options(std::int32_t ranks) const {
    EngineOptions options = pair_.options();
    options.tensor_parallel = ranks;
    return options;
  }
  const TinyPair pair_{shape()};
};

// A draft is whole or split, layers are in memory or in a file, weights are rounded or not: a text
// is what plain decoding makes of the same target on the same ranks.
TEST_F(SplitEngine, TextsAreThoseOfPlainDecoding) {
  struct Case {
    const char* name;
    void (*set)(EngineOptions& options);
  };
  const std::vector<Case> cases = {
      {"a whole draft", [](EngineOptions&) {}},
      {"a split draft", [](EngineOptions& of) { of.draft_tensor_parallel = 2; }},
      {"only the draft is split",
       [](EngineOptions& of) {
         of.tensor_parallel = 1;
         of.draft_tensor_parallel = 2;
       }},
      {"layers in a file", [](EngineOptions& of) { of.gpu_layers = 1; }},
      {"q8_0", [](EngineOptions& of) { of.target_weights = WeightRounding::q8_0; }},
      {"a draft that is split and rounded",
       [](EngineOptions& of) {
         of.tensor_parallel = 1;
         of.draft_tensor_parallel = 2;
         of.draft_weights = WeightRounding::q8_0;
       }},
      {"KV in bf16", [](EngineOptions& of) { of.kv_dtype = KvDtype::bf16; }},
  };
  for (const Case& of : cases) {
    SCOPED_TRACE(of.name);
    EngineOptions load = options(2);
    of.set(load);
    Engine engine = Engine::load(load);
    Engine again = Engine::load(load);
    for (const double temperature : {0.0, 0.8}) {
      GenerateOptions generate = sixteen_tokens(temperature);
      const auto text = text_of(engine, generate);
      EXPECT_EQ(text, text_of(engine, generate));
      EXPECT_EQ(text, text_of(again, generate));
      generate.speculation = Plain{};
      EXPECT_EQ(text, text_of(again, generate));
    }
  }
}

TEST_F(SplitEngine, GenerationsSayIt) {
  EngineOptions load = options(4);
  load.draft_tensor_parallel = 2;
  Engine engine = Engine::load(load);
  const Used used = engine.generate(std::vector<TokenId>{1, 2}, sixteen_tokens(0.0)).used;
  EXPECT_EQ(used.target_devices, 4);
  EXPECT_EQ(used.draft_devices, 2);
  load = options(0);  // automatic: nothing is gained on a CPU
  Engine whole = Engine::load(load);
  EXPECT_EQ(whole.generate(std::vector<TokenId>{1, 2}, sixteen_tokens(0.0)).used.target_devices, 1);
}

TEST_F(SplitEngine, WhatCannotBeSplitIsRefusedByName) {
  EXPECT_NE(refusal(options(3)).find("the model's 4 heads are no multiple of it"),
            std::string::npos)
      << refusal(options(3));
  EXPECT_NE(refusal(options(-1)).find("use 1 to 64, or 0"), std::string::npos);
  EXPECT_NE(refusal(options(65)).find("use 1 to 64, or 0"), std::string::npos);
  EngineOptions load = options(1);
  load.draft_tensor_parallel = 0;
  EXPECT_NE(refusal(load).find("draft_tensor_parallel 0: use 1 to 64"), std::string::npos);
  load.draft_tensor_parallel = 8;
  EXPECT_NE(refusal(load).find("heads"), std::string::npos) << refusal(load);
  load = options(2);
  load.devices = {0, 1};
  EXPECT_NE(refusal(load).find("devices: it names GPUs"), std::string::npos) << refusal(load);
  load.devices = {0, 1, 1};
  EXPECT_NE(refusal(load).find("GPU 1 is listed twice"), std::string::npos) << refusal(load);
  load = options(4);
  load.target_weights = WeightRounding::q4_k;  // blocks of 256 numbers, of which a rank has 64
  EXPECT_NE(refusal(load).find("no whole blocks"), std::string::npos) << refusal(load);
}

}  // namespace
}  // namespace coppice::testing
