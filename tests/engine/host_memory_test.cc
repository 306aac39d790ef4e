// Rows and KV planned by what a process may still use.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/loading.h"
#include "engine/memory_plan.h"
#include "engine/pair.h"
#include "models/kv/pass_layout.h"

namespace coppice {
namespace {

// Of layers that memory does not hold, as many lie in a file as have to.
TEST(HostLayers, StayWhereMemoryHoldsThem) {
  testing::TinyModel deep;
  deep.layers = 6;
  const testing::TinyPair pair(deep);
  EngineOptions asked = pair.options();
  asked.streamed_tree_size = 100;
  const PairFiles files(asked);
  const auto planned = [&](std::int64_t available) {
    EngineOptions options = asked;
    plan_host_layers(options, files, DType::f32, available);
    return options;
  };
  const EngineOptions whole = planned(std::int64_t{1} << 30);
  EXPECT_EQ(whole.gpu_layers, -1);
  EXPECT_EQ(whole.host_memory, 0u);
  EXPECT_EQ(whole.max_tree_size, asked.max_tree_size);
  std::int64_t available = std::int64_t{1} << 30;
  while (planned(available).gpu_layers < 0) available -= available / 16;
  const EngineOptions first = planned(available);
  EXPECT_LT(first.gpu_layers, deep.layers);
  EXPECT_EQ(first.host_memory, static_cast<std::uint64_t>(available - available / 4));
  EXPECT_EQ(first.max_tree_size, std::max(100, asked.max_tree_size));
  std::int32_t before = first.gpu_layers;
  std::string refused;
  while (refused.empty()) {
    available -= available / 16;
    try {
      const EngineOptions options = planned(available);
      EXPECT_LE(options.gpu_layers, before);
      EXPECT_GE(options.gpu_layers, 0);
      before = options.gpu_layers;
    } catch (const Error& error) {
      refused = error.what();
    }
  }
  EXPECT_EQ(before, 0);
  EXPECT_NE(refused.find("are free for them; use a quantised model"), std::string::npos) << refused;
  asked.gpu_layers = 2;
  EXPECT_EQ(planned(1).gpu_layers, 2) << "as asked";
}

// Weights that fit alone leave nothing to passes and KV, as host_memory beyond what is free does.
TEST(HostLayers, LeaveWhatPassesAndKvTake) {
  testing::TinyModel deep;
  deep.layers = 6;
  const testing::TinyPair pair(deep);
  const PairFiles files(pair.options());
  std::int64_t larger = 0;
  const auto planned = [&](std::int64_t available, std::int64_t beside,
                           std::uint64_t host_memory = 0) {
    EngineOptions options = pair.options();
    options.host_memory = host_memory;
    options.streamed_tree_size = 100;
    options.max_tree_size = 10;
    plan_host_layers(options, files, DType::f32, available, [&](const EngineOptions& tried) {
      return tried.max_tree_size > options.max_tree_size ? larger : beside;
    });
    return options;
  };
  std::int64_t weights = std::int64_t{1} << 24;
  while (planned(weights - 64, 0).gpu_layers < 0) weights -= 64;
  const std::int64_t free = weights + weights / 16;
  EXPECT_EQ(planned(free, weights / 16).gpu_layers, -1);
  for (const std::uint64_t asked : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const EngineOptions streams = planned(free, weights / 8, asked);
    EXPECT_GE(streams.gpu_layers, 0);
    EXPECT_EQ(streams.host_memory, static_cast<std::uint64_t>(free - free / 4));
  }
  const EngineOptions small = planned(free, weights / 8);
  EXPECT_EQ(small.max_tree_size, small.streamed_tree_size);
  larger = free / 4 + 100;  // what such trees take is not there
  EXPECT_LT(planned(free, weights / 8).max_tree_size, small.max_tree_size);
  EXPECT_EQ(planned(free, weights / 8).gpu_layers, small.gpu_layers);
  const EngineOptions more = planned(free, free / 4 + 100);
  EXPECT_EQ(more.host_memory, static_cast<std::uint64_t>(free - free / 4 - 100));
  EXPECT_EQ(planned(free, weights / 8, static_cast<std::uint64_t>(free)).host_memory,
            static_cast<std::uint64_t>(free - free / 4));
  EXPECT_EQ(planned(free, weights / 8, static_cast<std::uint64_t>(free - 1)).host_memory,
            static_cast<std::uint64_t>(free - weights / 8));
  EXPECT_EQ(planned(free, free).host_memory, static_cast<std::uint64_t>(free - free / 4))
      << "an estimate that leaves nothing is not followed";
}

TEST(HostLayers, LeaveAtLeastLogitsAndAShortTextsKv) {
  const EngineOptions options = testing::shipped_options();
  const PairFiles files(options);
  const auto device = make_cpu_device({});
  const ModelConfig &target = files.target.config, &draft = files.draft->config;
  constexpr std::int64_t free = std::int64_t{1} << 40;
  const std::int64_t kv = (tree_rows(options) + 256) * (kv_bytes_per_token(target, DType::f32) +
                                                        kv_bytes_per_token(draft, DType::f32));
  EXPECT_GT(bytes_beside_weights(options, files, *device, free),
            kv + logit_bytes(options, target, &draft) / 2);
  EngineOptions longer = options;
  longer.kv_tokens = 8192;
  EXPECT_GT(bytes_beside_weights(longer, files, *device, free),
            bytes_beside_weights(options, files, *device, free) + 10 * kv);
}

// Both limits are obeyed, or refused together.
TEST(HostLayers, ThatAreGivenToStayKeepWithinHostMemory) {
  testing::TinyModel deep;
  deep.layers = 6;
  const testing::TinyPair pair(deep);
  const PairFiles files(pair.options());
  const auto refusal = [&](std::int32_t layers, std::uint64_t host_memory) {
    EngineOptions options = pair.options();
    options.gpu_layers = layers;
    options.host_memory = host_memory;
    try {
      plan_host_layers(options, files, DType::f32, std::int64_t{1} << 30);
      EXPECT_EQ(options.gpu_layers, layers);
      EXPECT_EQ(options.host_memory, host_memory);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      return std::string(error.what());
    }
  };
  constexpr std::int32_t all = std::numeric_limits<std::int32_t>::max();
  std::uint64_t enough = 1;
  while (!refusal(all, enough).empty()) enough += 256;
  EXPECT_EQ(refusal(2, enough), "");
  const std::string fewer = refusal(all, enough - 512);
  EXPECT_NE(fewer.find("6 of the target's 6 layers in memory (gpu-layers)"), std::string::npos)
      << fewer;
  const auto number = fewer.find("; gpu-layers ");
  ASSERT_NE(number, std::string::npos) << fewer;
  const int fits = std::stoi(fewer.substr(number + 13));
  EXPECT_LT(fits, 6);
  EXPECT_EQ(refusal(fits, enough - 512), "");
  EXPECT_NE(refusal(fits + 1, enough - 512), "");
  EXPECT_NE(refusal(0, 1).find("raise host-memory"), std::string::npos);
}

class HostKv : public ::testing::Test {
 protected:
  HostKv() {
    config_.layers = 32;
    config_.kv_heads = 32;
    config_.head_dim = 128;
    config_.context_length = 4096;
    options_.max_tree_size = 64;
    options_.max_sequences = 1;
    token_bytes_ = kv_bytes_per_token(config_, DType::f32);
  }
  std::int64_t bytes(const KvTokens& kv) const {
    return token_bytes_ * (std::int64_t{kv.target} + kv.draft);
  }
  KvTokens plan(std::int64_t available) const {
    return plan_host_kv(options_, config_, &config_, DType::f32, available);
  }

  ModelConfig config_;
  EngineOptions options_;
  std::int64_t token_bytes_ = 0;
};

TEST_F(HostKv, IsWhatTheContextAsksForIfThereIsRoom) {
  const KvTokens kv = plan(std::int64_t{1} << 40);
  EXPECT_EQ(kv.target, wanted_kv_tokens(config_, options_, DType::f32));
  EXPECT_EQ(kv.draft, kv.target);
  EXPECT_EQ(plan_host_kv(options_, config_, nullptr, DType::f32, std::int64_t{1} << 40).draft, 0);
}

TEST_F(HostKv, ShrinksWithTheMemory) {
  std::int32_t before = wanted_kv_tokens(config_, options_, DType::f32) + 1;
  for (const std::int64_t available : {6000, 3000, 1500, 800}) {  // of 8322 tokens wanted
    const KvTokens kv = plan(available * token_bytes_);
    EXPECT_LE(bytes(kv), available * token_bytes_);
    EXPECT_EQ(kv.draft, kv.target);
    EXPECT_LT(kv.target, before);
    EXPECT_GE(kv.target, tree_rows(options_) + 256);
    before = kv.target;
  }
}

TEST_F(HostKv, RefusesWhatDoesNotFit) {
  const auto refused = [&](std::int64_t tokens) {
    try {
      plan(tokens * token_bytes_);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      return std::string(error.what());
    }
  };
  EXPECT_NE(refused(500).find("kv-tokens"), std::string::npos);
  EXPECT_NE(refused(0).find("kv-tokens"), std::string::npos);
  // A number that was asked for is not lowered in silence.
  options_.kv_tokens = 2000;
  EXPECT_NE(refused(3000).find("KV of 2000 tokens"), std::string::npos);
  EXPECT_EQ(refused(8000), "");
}

TEST_F(HostKv, ManyTextsHaveRoomForAUsualTextEach) {
  options_.max_sequences = 64;
  EXPECT_EQ(plan(std::int64_t{1} << 50).target, 64 * 2048 + 512);
  config_.context_length = 512;
  EXPECT_EQ(plan(std::int64_t{1} << 50).target, 64 * 512 + 512);
  // Never less than what one text is given.
  options_.max_sequences = 2;
  config_.context_length = 8192;
  EXPECT_EQ(plan(std::int64_t{1} << 50).target, 8192 + 65);
  options_.kv_tokens = 100;
  EXPECT_EQ(plan(std::int64_t{1} << 50).target, 100);
}

TEST_F(HostKv, ManyTextsTakeAQuarterOfTheMemoryOrOneContext) {
  options_.max_sequences = 64;
  const std::int32_t one = one_sequence_kv_tokens(config_, options_, DType::f32);
  std::int32_t before = 64 * 2048 + 512 + 1;
  for (std::int32_t available = 2 << 20; available > 8 * one; available -= available / 5) {
    const KvTokens kv = plan(available * token_bytes_);
    EXPECT_LE(4 * bytes(kv), available * token_bytes_);
    EXPECT_GT(6 * bytes(kv) + 6 * token_bytes_,
              std::min<std::int64_t>(available, 1 << 20) * token_bytes_);
    EXPECT_LE(kv.target, before);
    before = kv.target;
  }
  // A little more or less memory changes nothing.
  EXPECT_EQ(plan(300000 * token_bytes_).target, plan(303000 * token_bytes_).target);
  // One context may have more than a quarter.
  EXPECT_EQ(plan(4 * one * token_bytes_).target, one);
  const KvTokens short_of_memory = plan(3000 * token_bytes_);
  options_.max_sequences = 1;
  EXPECT_EQ(short_of_memory.target, plan(3000 * token_bytes_).target);
}

TEST(BatchRows, AreThoseOfATreeAtLeast) {
  EngineOptions options;
  options.max_tree_size = 64;
  EXPECT_EQ(batch_rows(options), 512);
  options.max_tree_size = 800;
  EXPECT_EQ(batch_rows(options), 801);
  options.max_batch_rows = 100;
  EXPECT_EQ(batch_rows(options), 801);
  options.max_tree_size = 64;
  EXPECT_EQ(batch_rows(options), 100);
  options.max_sequences = 1;
  EXPECT_EQ(batch_rows(options), 100);
  options.max_batch_rows = 0;
  EXPECT_EQ(batch_rows(options), 65);
}

TEST(BatchRows, AreFewerWhereLogitsWouldTakeTooMuchMemory) {
  EngineOptions options = testing::shipped_options();
  options.max_tree_size = 64;
  const auto rows = [&](std::int64_t available) { return plan_host_rows(options, available); };
  // Bytes of 4096 tokens; of the draft half as many, and as many distributions.
  constexpr std::int64_t all = (512 + 256 + 512) * 4096 * 4;
  EXPECT_EQ(rows(16 * all), 512);
  EXPECT_EQ(rows(16 * all - 16), 256);
  EXPECT_EQ(rows(2 * all), 65);
  EXPECT_EQ(rows(0), 65);
  options.max_batch_rows = 300;
  EXPECT_EQ(rows(0), 300);
}

TEST(Capacities, OutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    EngineOptions options = testing::shipped_options();
    change(options);
    try {
      Engine::load(options);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_sequences = 0; }),
            "max_sequences 0: use 1 to 1024; further texts wait until one ends");
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_sequences = 1025; }),
            "max_sequences 1025: use 1 to 1024; further texts wait until one ends");
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_batch_rows = -1; }),
            "max_batch_rows -1: use 1 to 2048, or 0 for automatic");
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_batch_rows = 2049; }),
            "max_batch_rows 2049: use 1 to 2048, or 0 for automatic");
  EXPECT_NE(refused([](EngineOptions& o) { o.kv_tokens = -1; }), "");
  EXPECT_NE(refused([](EngineOptions& o) { o.kv_tokens = INT32_MAX; }), "");
  EXPECT_NE(refused([](EngineOptions& o) { o.max_tree_size = 2049; }), "");
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_batch_rows = 1; }), "");
}

TEST(Capacities, AreThoseOfTheModels) {
  EngineOptions options = testing::shipped_options();
  options.device = DeviceKind::cpu;
  options.max_sequences = 8;
  options.max_batch_rows = 300;
  options.max_tree_size = 64;
  Engine engine = Engine::load(options);
  Engine::Impl& impl = inside(engine);
  const ModelOptions &target = impl.target.model->options(), &draft = impl.draft.model->options();
  EXPECT_EQ(impl.options.max_batch_rows, 300);
  EXPECT_EQ(target.max_logit_rows, 300);
  EXPECT_GE(target.max_rows, 300);
  EXPECT_EQ(draft.max_logit_rows, 150);
  EXPECT_GE(draft.max_rows, 300);
  // One pass may see whatever the pool holds, and list short runs for each text.
  EXPECT_GE(target.max_kv_tokens, PassLayout::most_listed(impl.target.pool->layout().slots(), 8));
  EXPECT_GE(draft.max_kv_tokens, PassLayout::most_listed(impl.draft.pool->layout().slots(), 8));
  EXPECT_GE(impl.target.pool->layout().slots(), 8 * 512 + 300);
  options.max_batch_rows = 0;
  Engine automatic = Engine::load(options);
  EXPECT_EQ(inside(automatic).options.max_batch_rows, 512);
}

}  // namespace
}  // namespace coppice
