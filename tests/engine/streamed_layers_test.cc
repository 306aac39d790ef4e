// Engines some of whose layers visit the device: the texts of engines that keep all of them there.
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "engine/layer_plan.h"
#include "engine/pair.h"
#include "models/layer_sums.h"
#include "sizing/cost_table.h"

namespace coppice::streamed_layers_test {

using namespace coppice::testing;

// --- the plan -----------------------------------------------------------------------------------

constexpr std::int32_t places = 2;

TEST(LayerPlan, CountsWhatStaysAndTheRing) {
  const std::vector<std::size_t> blocks = {10, 10, 30, 10};
  EXPECT_EQ(layer_bytes(blocks, 4, places), 60u);
  EXPECT_EQ(layer_bytes(blocks, -1, places), 60u);
  EXPECT_EQ(layer_bytes(blocks, 0, places), 60u);  // two places of the largest
  EXPECT_EQ(layer_bytes(blocks, 3, places), 60u);  // the last one visits, in one place
  EXPECT_EQ(layer_bytes(blocks, 2, places), 40u + 20u);
  EXPECT_EQ(visiting_bytes(blocks, 0), 60u);
  EXPECT_EQ(visiting_bytes(blocks, 3), 10u);
  EXPECT_EQ(visiting_bytes(blocks, 9), 0u);
}

TEST(LayerPlan, KeepsAsManyLayersAsFit) {
  const std::vector<std::size_t> blocks(10, 100);
  EXPECT_EQ(most_resident(blocks, places, 1000), 10);
  EXPECT_EQ(most_resident(blocks, places, 999), 7);
  EXPECT_EQ(most_resident(blocks, places, 200), 0);
  EXPECT_EQ(most_resident(blocks, places, 199), -1);
  EXPECT_EQ(least_resident(blocks, 1000), 0);
  EXPECT_EQ(least_resident(blocks, 450), 6);
  EXPECT_EQ(least_resident(blocks, 0), 10);
}

TEST(LayerPlan, SaysWhatIsCopied) {
  const auto described = [](const char* from) {
    return describe(LayerPlacement{80, 24, 3 << 20, from});
  };
  EXPECT_EQ(describe(LayerPlacement{4, 4, 0, ""}), "");
  EXPECT_EQ(
      described("host memory"),
      "24 of 80 layers stay on the device, the others, 3.1 MB, are copied to it in every pass");
  EXPECT_EQ(
      described("file"),
      "24 of 80 layers stay in memory, the others, 3.1 MB, are read from a file in every pass");
  EXPECT_EQ(described("memory"),
            "24 of 80 layers stay where they are, the others, 3.1 MB, are copied in every pass, in "
            "vain: gpu-layers is for GPUs");
}

// --- whole engines ------------------------------------------------------------------------------

TinyModel deep() {
  TinyModel model;
  model.layers = 5;
  return model;
}

std::vector<GenerateOptions> requests() {
  std::vector<GenerateOptions> all;
  for (const double temperature : {0.0, 0.6, 0.9}) {
    for (const Acceptance rule : {Acceptance::rejection, Acceptance::coupled}) {
      for (const Speculation& speculation :
           std::vector<Speculation>{Plain{}, Dyspec{12}, Chain{4}}) {
        GenerateOptions request;
        request.max_new_tokens = 24;
        request.sampling.temperature = temperature;
        request.acceptance = rule;
        request.speculation = speculation;
        request.seed = 7;
        all.push_back(request);
      }
    }
  }
  return all;
}

std::vector<std::vector<TokenId>> texts_of(const EngineOptions& options) {
  Engine engine = Engine::load(options);
  std::vector<std::vector<TokenId>> texts;
  const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
  for (const GenerateOptions& request : requests()) {
    texts.push_back(engine.generate(prompt, request).tokens);
  }
  // Texts of all these kinds in one batch, which greedy and coupled ones do not notice.
  std::vector<Request> side_by_side;
  for (const GenerateOptions& request : requests()) {
    if (request.sampling.temperature > 0.0 && request.acceptance == Acceptance::rejection) continue;
    Request& one = side_by_side.emplace_back();
    one.tokens = {1, static_cast<TokenId>(5 + side_by_side.size())};
    one.options = request;
  }
  for (Outcome& outcome : engine.generate(side_by_side)) {
    if (outcome.error) std::rethrow_exception(outcome.error);
    texts.push_back(outcome.samples.front().tokens);
  }
  return texts;
}

TEST(StreamedLayers, ChangeNoText) {
  const TinyPair pair(deep());
  EngineOptions options = pair.options();
  const auto resident = texts_of(options);
  for (const std::int32_t stay : {0, 2, 4}) {
    options.gpu_layers = stay;
    EXPECT_EQ(texts_of(options), resident) << stay << " resident layers";
  }
  options.draft_gpu_layers = 1;
  EXPECT_EQ(texts_of(options), resident) << "the draft's are streamed, too";
}

// A CPU reads what memory does not hold from a file.
TEST(StreamedLayers, LieInAFileWhereMemoryIsShort) {
  if (on_cuda()) GTEST_SKIP() << "is of the host's memory";
  const TinyPair pair(deep());
  EngineOptions options = pair.options();
  const auto resident = texts_of(options);
  Engine whole = Engine::load(options);
  const auto blocks = inside(whole).target.model->layer_blocks();
  const auto others = [&] {
    std::size_t bytes = visiting_bytes(blocks, 0);
    for (const Model* model : {inside(whole).target.model.get(), inside(whole).draft.model.get()}) {
      bytes += 2 * model->weight_bytes_read();
    }
    return bytes;
  }();
  options.host_memory = others;  // more than there is
  EXPECT_EQ(Engine::load(options)
                .generate(std::vector<TokenId>{1, 7}, requests()[1])
                .used.target_layers.streamed_from,
            "");
  std::string refused;
  std::int32_t streamed = 0;
  for (std::uint64_t room = others; room > 1024; room -= room / 4) {
    options.host_memory = room;
    try {
      Engine engine = Engine::load(options);
      const Used used = engine.generate(std::vector<TokenId>{1, 7}, requests()[1]).used;
      if (used.target_layers.streamed_bytes == 0) continue;
      EXPECT_EQ(used.target_layers.streamed_from, "file");
      EXPECT_EQ(used.target_layers.streamed_bytes,
                visiting_bytes(blocks, used.target_layers.resident));
      EXPECT_EQ(texts_of(options), resident) << used.target_layers.resident;
      ++streamed;
      expect_nothing_leaked(engine);
    } catch (const Error& error) {
      refused = error.what();
    }
  }
  EXPECT_GE(streamed, 1);
  EXPECT_NE(refused.find("too little memory: even if all layers of the target lie in a file"),
            std::string::npos)
      << refused;
}

TEST(StreamedLayers, AreDraftedByTheirOwnModelInFewerBits) {
  TinyModel model = deep();
  model.hidden_size = model.intermediate_size = 256;  // whole blocks
  const TinyPair pair(model);
  EngineOptions options = pair.options();
  options.draft = options.target;
  options.draft_weights = WeightRounding::q4_k;
  const auto resident = texts_of(options);
  options.gpu_layers = 0;
  EXPECT_EQ(texts_of(options), resident);
}

TEST(StreamedLayers, AreSaidInWhatWasUsed) {
  const TinyPair pair(deep());
  EngineOptions options = pair.options();
  options.gpu_layers = 3;
  Engine engine = Engine::load(options);
  const std::vector<TokenId> prompt = {1, 7};
  const Used used = engine.generate(prompt, requests().front()).used;
  EXPECT_EQ(used.target_layers.layers, 5);
  EXPECT_EQ(used.target_layers.resident, 3);
  EXPECT_EQ(used.target_layers.streamed_bytes,
            visiting_bytes(inside(engine).target.model->layer_blocks(), 3));
  EXPECT_EQ(used.target_layers.streamed_from, on_cuda() ? "host memory" : "memory");
  EXPECT_EQ(used.draft_layers.resident, 5);
  EXPECT_EQ(used.draft_layers.streamed_bytes, 0u);
  expect_nothing_leaked(engine);
}

TEST(StreamedLayers, HaveCostsOfTheirOwn) {
  const TinyPair pair(deep());
  EngineOptions options = pair.options();
  const auto fingerprint = [&] {
    Engine engine = Engine::load(options);
    return cost_fingerprint(*inside(engine).target.model, *inside(engine).draft.model);
  };
  const std::string resident = fingerprint();
  options.gpu_layers = 2;
  EXPECT_NE(fingerprint(), resident);
}

TEST(StreamedLayers, NumbersOutOfRangeAreRefused) {
  const TinyPair pair;
  for (auto field : {&EngineOptions::gpu_layers, &EngineOptions::draft_gpu_layers}) {
    EngineOptions options = pair.options();
    options.*field = -2;
    EXPECT_THROW(Engine::load(options), Error);
  }
  EngineOptions options = pair.options();
  options.streamed_tree_size = 5000;
  EXPECT_THROW(Engine::load(options), Error);
}

}  // namespace coppice::streamed_layers_test
