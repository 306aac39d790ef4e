// Engines whose target is split over GPUs, or over one that has all parts where there is no second
// one. (What engines do with a split target is tested by tests/engine with COPPICE_TEST_DEVICE=cuda
// and COPPICE_TEST_RANKS=2.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

class TensorParallel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!has_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
};

GenerateOptions greedy(std::int32_t tokens, const Speculation& speculation) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.ignore_eos = true;
  options.logprobs = true;
  options.speculation = speculation;
  return options;
}

EngineOptions split_options(std::vector<std::int32_t> cards = {}) {
  EngineOptions options = shipped_options();
  options.device = DeviceKind::cuda;
  options.tensor_parallel = 2;
  options.devices = std::move(cards);
  if (cuda_device_count() < 2) options.devices = {0, 0};
  return options;
}

// Texts of one engine twice, of another one, and, with two GPUs, of one whose first is the second.
TEST_F(TensorParallel, TextsRepeatThemselves) {
  const std::string prompt = prompts().front();
  std::vector<TokenId> first;
  for (const std::vector<std::int32_t>& list : {std::vector<std::int32_t>{}, {0, 1}, {1, 0}}) {
    Engine engine = Engine::load(split_options(list));
    for (int turn = 0; turn < 2; ++turn) {
      const Generation text = engine.generate(prompt, greedy(96, Dyspec{24}));
      EXPECT_EQ(text.used.target_devices, 2);
      if (first.empty()) first = text.tokens;
      EXPECT_EQ(text.tokens, first);
    }
  }
}

TEST_F(TensorParallel, TheDraftMayBeSplitToo) {
  EngineOptions options = split_options();
  options.draft_tensor_parallel = 2;
  Engine engine = Engine::load(options);
  const Generation text = engine.generate(prompts().front(), greedy(64, Dyspec{16}));
  EXPECT_EQ(text.used.draft_devices, 2);
  EXPECT_GT(text.statistics.accepted_length, 1.5);
}

TEST_F(TensorParallel, GpusThatAreNotThereAreRefused) {
  EngineOptions options = split_options();
  options.devices = {};
  options.tensor_parallel = 64;
  EXPECT_THROW(Engine::load(options), Error);
  options.tensor_parallel = 2;
  options.devices = {0, 77};
  EXPECT_THROW(Engine::load(options), Error);
  options.devices = {0, 0, 1};
  EXPECT_THROW(Engine::load(options), Error);
}

}  // namespace
}  // namespace coppice::testing
