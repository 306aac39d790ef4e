// What the CPU computes in: by default F32 with weights in the checkpoint's own type.
#include "cpu_type.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/json_file.h"
#include "engine/pair.h"
#include "kernels/cpu/instruction_set.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

TEST(CpuType, IsF32UnlessBf16IsAskedFor) {
  EXPECT_EQ(cpu_type(EngineOptions().cpu_dtype), DType::f32);
  EXPECT_EQ(cpu_type("f32"), DType::f32);
  EXPECT_EQ(cpu_type("auto"), DType::f32);
  EXPECT_EQ(cpu_type("bf16"), DType::bf16);
  EXPECT_THROW(cpu_type("f16"), Error);
}

TEST(CpuType, IsDescribed) {
  const testing::TemporaryFolder folder;
  for (const auto& [stored, name] : std::vector<std::pair<DType, std::string>>{
           {DType::f32, "F32"}, {DType::f16, "F16"}, {DType::bf16, "BF16"}}) {
    testing::TinyModel model;
    model.dtype = stored;
    testing::write_tiny_model(folder.path() / name, model);
    const std::string kept = stored == DType::f16 && !cpu::has_native_f16()
                                 ? "F16 kept as F32, as sse4 does not widen them"
                                 : name + " as stored";
    EXPECT_EQ(describe_cpu_types(folder.path() / name, DType::f32),
              "weights " + kept + ", activations and sums F32");
    EXPECT_EQ(describe_cpu_types(folder.path() / name, DType::bf16),
              "weights and activations BF16, sums F32" +
                  (name == "BF16" ? "" : " (stored as " + name + ")"));
  }
  EXPECT_NE(describe_cpu_types(folder.path() / "nothing here", DType::f32).find("unknown"),
            std::string::npos);
  EXPECT_EQ(describe_cpu_bf16().find("not on this processor") == 0, !cpu::has_native_bf16());
}

// Weights keep their types, and a draft's type does not change the target's text.
TEST(CpuType, WeightsOfAPairMayDiffer) {
  for (const DType of_target : {DType::f32, DType::f16, DType::bf16}) {
    const DType of_draft = of_target == DType::f32 ? DType::bf16 : DType::f32;
    const testing::TemporaryFolder folder;
    testing::TinyModel target, draft;
    target.dtype = of_target;
    draft.dtype = of_draft;
    draft.noise = 0.3;
    testing::write_tiny_model(folder.path() / "target", target);
    testing::write_tiny_model(folder.path() / "draft", draft);
    EngineOptions options;
    options.target = folder.path() / "target";
    options.draft = folder.path() / "draft";
    options.device = "cpu";
    options.threads = 2;
    Engine pair = Engine::load(options);
    const std::size_t of_target_bytes = pair.impl().target.model->weight_bytes_read();
    const std::size_t of_draft_bytes = pair.impl().draft.model->weight_bytes_read();
    EXPECT_EQ(of_target_bytes < of_draft_bytes,
              of_target == DType::bf16 || (of_target == DType::f16 && cpu::has_native_f16()));
    options.draft.clear();
    Engine alone = Engine::load(options);

    const std::vector<TokenId> prompt = {1, 5, 9};
    GenerateOptions request;
    request.max_new_tokens = 24;
    request.ignore_eos = true;
    request.tree_size = 6;
    const Generation with_draft = pair.generate(prompt, request);
    EXPECT_EQ(with_draft.tokens.size(), 24u);
    EXPECT_EQ(with_draft.statistics.dtype, "f32");
    EXPECT_EQ(with_draft.tokens, alone.generate(prompt, request).tokens);
    testing::expect_nothing_leaked(pair);
  }
}

// Texts of models that others wrote, by the options' own defaults.
TEST(CpuType, TheDefaultFollowsTheGoldenTexts) {
  int models = 0, steps = 0;
  const fs::path golden = fs::path(COPPICE_SOURCE_DIR) / "tests/golden/data";
  for (const auto& folder : fs::directory_iterator(golden)) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    SCOPED_TRACE(folder.path().filename().string());
    ++models;
    EngineOptions options;
    options.target = folder.path();
    options.device = "cpu";
    options.threads = 1;
    Engine engine = Engine::load(options);
    const auto about = read_json_object(folder.path() / "golden.json", 1 << 20);
    for (const auto& sequence : about->at("sequences")) {
      const auto greedy = sequence.at("greedy").get<std::vector<TokenId>>();
      const auto gaps = sequence.at("gaps").get<std::vector<double>>();
      GenerateOptions request;
      request.max_new_tokens = static_cast<std::int32_t>(greedy.size());
      request.ignore_eos = true;
      const auto tokens =
          engine.generate(sequence.at("tokens").get<std::vector<TokenId>>(), request).tokens;
      // Logits of about 1 are off by 1e-5 at most: a text may part where two come closer.
      for (std::size_t i = 0; i < greedy.size() && gaps[i] > 1e-4; ++i, ++steps) {
        ASSERT_LT(i, tokens.size());
        ASSERT_EQ(tokens[i], greedy[i]) << i;
      }
    }
  }
  EXPECT_GE(models, 2);
  EXPECT_GE(steps, 60);
}

}  // namespace
}  // namespace coppice
