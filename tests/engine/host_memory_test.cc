// KV planned by what a process may still use.
#include <gtest/gtest.h>

#include "engine/loading.h"
#include "engine/memory_plan.h"
#include "engine/pair.h"

namespace coppice {
namespace {

class HostKv : public ::testing::Test {
 protected:
  HostKv() {
    config_.layers = 32;
    config_.kv_heads = 32;
    config_.head_dim = 128;
    config_.context_length = 4096;
    options_.max_tree_size = 64;
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

}  // namespace
}  // namespace coppice
