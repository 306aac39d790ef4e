// Pairs of models for the engine's tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "coppice.h"
#include "engine/decode.h"
#include "engine/engine_impl.h"
#include "reference/shipped_prompts.h"
#include "reference/test_device.h"
#include "reference/tiny_model.h"

namespace coppice::testing {

/// As COPPICE_TEST_RANKS says: over GPUs if there are as many, else on the first one.
inline void split_over_ranks(EngineOptions& options) {
  options.tensor_parallel = test_ranks();
  if (options.device == DeviceKind::cuda && cuda_device_count() < test_ranks()) {
    options.devices.assign(static_cast<std::size_t>(test_ranks()), 0);
  }
}

/// A random target and a draft that resembles it.
class TinyPair {
 public:
  /// `draft_noise` 0: the draft is the target; 1: it knows nothing of it.
  explicit TinyPair(TinyModel target = {}, double draft_noise = 0.3) {
    if (on_cuda()) target.dtype = DType::bf16;  // what the GPU computes with
    TinyModel draft = target;
    draft.noise = draft_noise;
    write_tiny_model(folder_.path() / "target", target);
    write_tiny_model(folder_.path() / "draft", draft);
  }
  EngineOptions options() const {
    EngineOptions options;
    options.target = folder_.path() / "target";
    options.draft = folder_.path() / "draft";
    options.device = on_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
    options.threads = 1;
    options.cpu_dtype = CpuDtype::f32;
    split_over_ranks(options);
    return options;
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

/// A prompt whose KV is there, but for the last token's: no text after it begins with a token that
/// came with prefill, and speculation begins with the first.
class KeptPrompt {
 public:
  KeptPrompt(Engine& engine, std::span<const TokenId> prompt)
      : impl_(inside(engine)), state_(impl_.new_state()) {
    impl_.append_prompt(state_, prompt);
    length_ = state_.length();
    const std::lock_guard lock(impl_.mutex);
    const DeviceScope scope(*impl_.device);
    EXPECT_TRUE(impl_.target_runner->prefill(state_));
  }

  Generation generate(const GenerateOptions& options) {
    impl_.check(options);
    const CutBack prompt{state_, length_};
    return decode(impl_, state_, options);
  }

 private:
  Engine::Impl& impl_;
  SequenceState state_;
  std::int32_t length_ = 0;
};

/// All KV slots of both models are free, but for those that nobody uses.
inline void expect_nothing_leaked(Engine& engine) {
  inside(engine).cache->validate();
  engine.drop_cache();
  for (const LoadedModel* model : {&inside(engine).target, &inside(engine).draft}) {
    EXPECT_EQ(model->pool->free_slots(), model->pool->layout().slots());
  }
}

inline std::filesystem::path stories() {
  return std::filesystem::path(COPPICE_SOURCE_DIR) / "models" / "stories";
}

inline EngineOptions shipped_options(CpuDtype dtype = CpuDtype::f32, int threads = 1) {
  EngineOptions options;
  options.target = stories() / "target";
  options.draft = stories() / "draft";
  options.device = on_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
  options.threads = threads;
  options.cpu_dtype = dtype;
  split_over_ranks(options);
  return options;
}

}  // namespace coppice::testing
