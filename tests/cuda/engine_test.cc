// Whole engines on the GPU: recordings, memory, repeatability, agreement with the CPU. (What
// engines do on any device is tested by tests/engine with COPPICE_TEST_DEVICE=cuda.)
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <optional>
#include <random>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/loading.h"
#include "engine/memory_plan.h"
#include "engine/pair.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/random_tokens.h"

namespace coppice::testing {
namespace {

class CudaEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!has_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
};

EngineOptions on_gpu(EngineOptions options) {
  options.device = DeviceKind::cuda;
  return options;
}

GenerateOptions sampled(std::int32_t tokens, std::int32_t tree_size, std::uint64_t seed) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.sampling.temperature = 0.8;
  options.acceptance = Acceptance::rejection;
  options.speculation = Dyspec{tree_size};
  options.seed = seed;
  options.ignore_eos = true;
  return options;
}

// Small models generate at once, while code for their products is still loaded: recordings and
// loading must not meet.
TEST_F(CudaEngine, RecordsPassesWhileCodeIsLoaded) {
  TinyModel shape;
  shape.eos_tokens = {};
  shape.dtype = DType::bf16;
  const TinyPair pair(shape);
  EngineOptions options = on_gpu(pair.options());
  options.cost_cache = false;  // measuring costs makes a hundred passes
  for (int load = 0; load < 30; ++load) {
    Engine engine = Engine::load(options);
    const std::vector<TokenId> prompt = {3, 4, 5};
    EXPECT_EQ(engine.generate(prompt, sampled(16, 0, 1)).tokens.size(), 16u);
  }
}

// A recorded pass played back for other tokens, trees and prefixes gives the very bits of a pass
// that queues its launches anew.
TEST_F(CudaEngine, RecordedPassesEqualUnrecordedOnes) {
  const auto folder = stories() / "target";
  ChainRunner recorded(folder, make_cuda_device({}), {.max_rows = 64}, 512, 16);
  ChainRunner unrecorded(folder, make_cuda_device({.record = false}), {.max_rows = 64}, 512, 16);
  std::mt19937 random(3);
  std::vector<KvSlot> prefix, prefix2;
  for (int pass = 0; pass < 60; ++pass) {
    const std::size_t rows = 1 + random() % 20;
    if (prefix.size() + rows > 400 || pass % 17 == 16) {
      recorded.pool.give_back(prefix);
      unrecorded.pool.give_back(prefix2);
      prefix.clear();
      prefix2.clear();
    }
    const auto tokens = random_tokens(rows, 4096, static_cast<std::uint32_t>(pass));
    std::vector<std::int32_t> wanted;
    for (std::size_t r = 0; r < rows; ++r) {
      if (pass % 3 != 0 || r + 2 >= rows) wanted.push_back(static_cast<std::int32_t>(r));
    }
    const auto slots = recorded.chain(tokens, prefix, wanted);
    const auto slots2 = unrecorded.chain(tokens, prefix2, wanted);
    ASSERT_EQ(recorded.logits, unrecorded.logits) << "pass " << pass << " of " << rows << " rows";
    prefix.insert(prefix.end(), slots.begin(), slots.end());
    prefix2.insert(prefix2.end(), slots2.begin(), slots2.end());
  }
}

// Two texts over one pool take turns, so that the slots on the GPU change from pass to pass.
TEST_F(CudaEngine, SequencesTakeTurns) {
  Engine engine = Engine::load(on_gpu(shipped_options()));
  const auto first = engine.tokenize("The captain looked at the sea");
  const auto second = engine.tokenize("Once upon a time there was a fox and");
  const auto alone = [&](const std::vector<TokenId>& prompt, std::uint64_t seed) {
    return engine.generate(prompt, sampled(60, 8, seed)).tokens;
  };
  const auto one = alone(first, 1), two = alone(second, 2);
  Sequence a = engine.new_sequence(), b = engine.new_sequence();
  // The prefix's slots differ, so its chunks are read in another order: same values, same bits.
  EXPECT_EQ(a.generate(first, sampled(60, 8, 1)).tokens, one);
  EXPECT_EQ(b.generate(second, sampled(60, 8, 2)).tokens, two);
  const std::vector<TokenId> more = {5, 6, 7};
  const auto c = a.generate(more, sampled(30, 8, 3)).tokens;
  const auto d = b.generate(more, sampled(30, 8, 4)).tokens;
  EXPECT_EQ(c.size(), 30u);
  EXPECT_EQ(d.size(), 30u);
}

TEST_F(CudaEngine, SameSeedSameTextInEveryRun) {
  std::vector<std::vector<TokenId>> texts;
  for (int run = 0; run < 3; ++run) {
    Engine engine = Engine::load(on_gpu(shipped_options()));
    const auto prompt = engine.tokenize("It was late when");
    std::vector<TokenId> text;
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
      for (const std::int32_t size : {1, 7, 24, 64}) {
        GenerateOptions options = sampled(64, size, 9);
        options.acceptance = acceptance;
        const auto tokens = engine.generate(prompt, options).tokens;
        text.insert(text.end(), tokens.begin(), tokens.end());
      }
    }
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

// One plan, made before anything is allocated, and what is then allocated are the same.
TEST_F(CudaEngine, MemoryIsWhatWasPlanned) {
  for (const std::int32_t tree_size : {64, 300}) {
    EngineOptions options = on_gpu(shipped_options());
    options.max_tree_size = tree_size;
    options.kv_tokens = 1000;
    const MemoryPlan plan = plan_memory(options, PairFiles(options), *make_engine_device(options));
    Engine engine = Engine::load(options);
    const auto held = inside(engine).device->memory_use();
    for (const MemoryUse& use : plan.uses) {
      std::size_t bytes = 0;
      for (const MemoryUse& one : held) {
        if (one.purpose == use.purpose) bytes = one.bytes;
      }
      EXPECT_EQ(bytes, use.bytes) << use.purpose;
    }
    EXPECT_EQ(held.size(), plan.uses.size());
  }
}

TEST_F(CudaEngine, MemoryThatIsMissingIsNamed) {
  EngineOptions options = on_gpu(shipped_options());
  options.gpu_memory_fraction = 1e-4;
  try {
    Engine::load(options);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    const std::string text = error.what();
    EXPECT_NE(text.find("MiB"), std::string::npos) << text;
    EXPECT_NE(text.find("gpu-memory-fraction"), std::string::npos) << text;
  }
  options = on_gpu(shipped_options());
  options.kv_tokens = 1 << 30;
  EXPECT_THROW(Engine::load(options), Error);
}

// --- layers that visit the card -----------------------------------------------------------------

class StreamedTarget : public CudaEngine {
 protected:
  void SetUp() override {
    CudaEngine::SetUp();
    if (IsSkipped()) return;
    TinyModel model;
    model.layers = 6;
    model.hidden_size = 512;
    model.intermediate_size = 2048;
    pair_.emplace(model);
    options_ = on_gpu(pair_->options());
    options_.kv_tokens = 400;
    options_.max_sequences = 1;
    options_.max_tree_size = 64;
  }
  MemoryPlan plan() {
    return plan_memory(options_, PairFiles(options_), *make_engine_device(options_));
  }
  /// The message; "" if it loads.
  std::string refusal() {
    try {
      Engine::load(options_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::optional<TinyPair> pair_;
  EngineOptions options_;
};

TEST_F(StreamedTarget, ItsLayersGoToTheHostWhereTheCardIsTooSmall) {
  const MemoryPlan whole = plan();
  EXPECT_EQ(whole.target_layers.resident, 6);
  Engine resident = Engine::load(options_);
  const std::size_t layer = inside(resident).target.model->layer_blocks().front();
  const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
  const auto wanted = resident.generate(prompt, sampled(40, 16, 3)).tokens;
  for (const std::size_t missing : {std::size_t{1}, layer, 3 * layer, 4 * layer - 4096}) {
    options_.gpu_memory = whole.bytes - missing;
    const MemoryPlan smaller = plan();
    EXPECT_LT(smaller.target_layers.resident, 6) << missing;
    EXPECT_LE(smaller.bytes, options_.gpu_memory);
    EXPECT_EQ(smaller.kv.target, whole.kv.target);
    Engine engine = Engine::load(options_);
    EXPECT_LE(inside(engine).device->memory_use().size(), smaller.uses.size());
    std::size_t held = 0;
    for (const MemoryUse& use : inside(engine).device->memory_use()) held += use.bytes;
    EXPECT_EQ(held, smaller.bytes);
    EXPECT_EQ(engine.generate(prompt, sampled(40, 16, 3)).tokens, wanted) << missing;
  }
}

TEST_F(StreamedTarget, WhatDoesNotFitIsSaidWithNumbers) {
  const MemoryPlan whole = plan();
  options_.gpu_memory = whole.bytes - 1;
  options_.gpu_layers = 6;
  EXPECT_NE(refusal().find("--gpu-layers 3 would fit"), std::string::npos) << refusal();
  options_.gpu_layers = -1;
  options_.gpu_memory = whole.bytes / 3;
  EXPECT_NE(refusal().find("gpu-memory"), std::string::npos) << refusal();
  options_.gpu_memory = 0;
  options_.gpu_layers = 0;
  options_.host_memory = 1 << 20;
  EXPECT_NE(refusal().find("too little host memory: 6 of the target's 6 layers"), std::string::npos)
      << refusal();
}

TEST_F(CudaEngine, ManyGenerationsLeaveMemoryFlat) {
  const TinyPair pair;
  Engine engine = Engine::load(on_gpu(pair.options()));
  const std::vector<TokenId> prompt = {1, 7, 3, 9, 4};
  const auto run = [&](int i) {
    GenerateOptions options = sampled(12, i % 3 == 0 ? 0 : 1 + i % 40, static_cast<unsigned>(i));
    options.acceptance = i % 2 == 0 ? Acceptance::rejection : Acceptance::coupled;
    if (i % 5 == 0) options.sampling.temperature = 0.0;
    if (i % 7 == 0) options.sampling.repetition_penalty = 1.2;
    engine.generate(prompt, options);
  };
  for (int i = 0; i < 300; ++i) run(i);  // all row counts have been met and recorded
  const std::size_t before = inside(engine).device->memory().free;
  for (int i = 0; i < 1000; ++i) run(i);
  const std::size_t after = inside(engine).device->memory().free;
  // Recordings of row counts not met before may still come; nothing may grow with generations.
  EXPECT_LT(before > after ? before - after : 0, std::size_t{8} << 20);
  engine.drop_cache();
  EXPECT_EQ(inside(engine).target.pool->free_slots(), inside(engine).target.pool->layout().slots());
  EXPECT_EQ(inside(engine).draft.pool->free_slots(), inside(engine).draft.pool->layout().slots());
}

// The same logits on both devices, up to the rounding of bf16 activations, keys and values.
TEST_F(CudaEngine, AgreesWithTheCpu) {
  for (const char* name : {"target", "draft"}) {
    const auto folder = stories() / name;
    ChainRunner gpu(folder, make_cuda_device({}), {.max_rows = 256}, 512, 16);
    ChainRunner host(folder, cpu(DType::f32), {.max_rows = 256}, 512, 16);
    const auto tokens = random_tokens(200, 4096, 17);
    std::vector<std::int32_t> all(tokens.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<std::int32_t>(r);
    gpu.chain(tokens, {}, all);
    host.chain(tokens, {}, all);
    double worst = 0.0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      double squares = 0.0;
      for (const float x : host.logits[r]) squares += double{x} * x;
      const double bound = logit_tolerance(gpu.model->config(), DType::bf16,
                                           std::sqrt(squares / host.logits[r].size()));
      for (std::size_t i = 0; i < host.logits[r].size(); ++i) {
        const double error = std::abs(double{gpu.logits[r][i]} - host.logits[r][i]);
        ASSERT_LE(error, bound) << name << ", row " << r << ", logit " << i;
        worst = std::max(worst, error / bound);
      }
    }
    std::cout << name << ": largest difference " << worst << " of the tolerance\n";
  }
}

// Coupled noise is the same on both devices, so texts agree until two candidates nearly tie.
TEST_F(CudaEngine, CoupledTextsAgreeWithTheCpu) {
  Engine gpu = Engine::load(on_gpu(shipped_options()));
  EngineOptions on_host = shipped_options();
  on_host.device = DeviceKind::cpu;
  Engine host = Engine::load(on_host);
  int same = 0, texts = 0;
  for (const char* text : {"The captain looked at the", "Once upon a time", "It was late",
                           "She said", "Two plus three is", "The old house"}) {
    const auto prompt = gpu.tokenize(text);
    GenerateOptions options = sampled(24, 8, 5);
    options.acceptance = Acceptance::coupled;
    const auto a = gpu.generate(prompt, options).tokens;
    const auto b = host.generate(prompt, options).tokens;
    ++texts;
    std::size_t equal = 0;
    while (equal < a.size() && a[equal] == b[equal]) ++equal;
    same += static_cast<int>(equal);
  }
  // Unrelated noise agrees for a token or two; bf16 against f32 flips one token in hundreds.
  std::cout << same << " of " << 24 * texts << " tokens before the first near-tie of each text\n";
  EXPECT_GT(same, 24 * texts / 2);
}

// Beliefs and what is learned of their inverse temperature follow the CPU's: texts and trees are
// the same until a near-tie, and afterwards of a kind.
TEST_F(CudaEngine, LearnsTheInverseTemperatureThatTheCpuLearns) {
  Engine gpu = Engine::load(on_gpu(shipped_options()));
  EngineOptions on_host = shipped_options();
  on_host.device = DeviceKind::cpu;
  Engine host = Engine::load(on_host);
  const auto all = prompts();
  for (const double temperature : {0.0, 0.8}) {
    double moved = 0.0, apart = 0.0, accepted = 0.0, accepted_by_host = 0.0;
    constexpr int texts = 24;
    for (int i = 0; i < texts; ++i) {
      const auto prompt = gpu.tokenize(all[static_cast<std::size_t>(i) * all.size() / texts]);
      GenerateOptions options = sampled(96, 16, 5);
      options.sampling.temperature = temperature;
      options.acceptance = Acceptance::coupled;
      const Generation on_gpu = gpu.generate(prompt, options);
      const Generation by_host = host.generate(prompt, options);
      const Statistics &a = on_gpu.statistics, &b = by_host.statistics;
      const double learned = on_gpu.used.draft_temperature;
      const double start = temperature > 0.0 ? 0.45 / temperature : 0.45;
      moved += std::abs(std::log(learned / start)) / texts;
      apart += std::log(learned / by_host.used.draft_temperature) / texts;
      accepted += a.accepted_length / texts;
      accepted_by_host += b.accepted_length / texts;
    }
    std::cout << "temperature " << temperature
              << ": log of the belief temperature learned, moved by " << moved << ", " << apart
              << " from the CPU's; accepted length " << accepted << ", " << accepted_by_host
              << " on the CPU\n";
    EXPECT_GT(moved, 0.02);
    EXPECT_LT(std::abs(apart), 0.12);
    EXPECT_NEAR(accepted, accepted_by_host, 0.15 * accepted_by_host);
  }
}

TEST_F(CudaEngine, HeadsWithoutAKernelAreRefused) {
  TinyModel model;
  model.head_dim = 20;
  const TinyPair pair(model);
  try {
    Engine::load(on_gpu(pair.options()));
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("20"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coppice::testing
