// What the CPU computes in by default: never coarser than a checkpoint's own type.
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

DType type_here(DType stored) {
  return stored == DType::bf16 && cpu::has_native_bf16() ? DType::bf16 : DType::f32;
}

TEST(CpuType, IsNeverCoarserThanTheWeights) {
  const testing::TemporaryFolder folder;
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    testing::TinyModel model;
    model.dtype = stored;
    const fs::path dir = folder.path() / name_of(stored);
    testing::write_tiny_model(dir, model);
    EXPECT_EQ(choose_cpu_type(dir, "auto").type, type_here(stored)) << name_of(stored);
    EXPECT_EQ(choose_cpu_type(dir, "f32").type, DType::f32);
    EXPECT_EQ(choose_cpu_type(dir, "bf16").type, DType::bf16);
    EXPECT_THROW(choose_cpu_type(dir, "f16"), Error);
  }
  EXPECT_NE(choose_cpu_type(folder.path() / "f32", "auto").why.find("F32"), std::string::npos);
  EXPECT_NE(choose_cpu_type(folder.path() / "f16", "auto").why.find("F16"), std::string::npos);
  EXPECT_EQ(choose_cpu_type(folder.path() / "nothing here", "auto").type, DType::f32);
}

// A draft must not change what the target computes in, and through it the text.
TEST(CpuType, EachModelOfAPairGoesByItsOwnWeights) {
  for (const DType of_target : {DType::f32, DType::bf16}) {
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
    EXPECT_EQ(pair.impl().target.model->device().compute_dtype(), type_here(of_target));
    EXPECT_EQ(pair.impl().draft.model->device().compute_dtype(), type_here(of_draft));
    options.draft.clear();
    Engine alone = Engine::load(options);
    EXPECT_EQ(alone.impl().device->compute_dtype(), type_here(of_target));

    const std::vector<TokenId> prompt = {1, 5, 9};
    GenerateOptions request;
    request.max_new_tokens = 24;
    request.ignore_eos = true;
    request.tree_size = 6;
    const Generation with_draft = pair.generate(prompt, request);
    EXPECT_EQ(with_draft.tokens.size(), 24u);
    EXPECT_EQ(with_draft.statistics.dtype, name_of(type_here(of_target)));
    if (type_here(of_target) == DType::f32) {  // near-ties of bf16: identity_test.cc counts them
      EXPECT_EQ(with_draft.tokens, alone.generate(prompt, request).tokens);
    }
    testing::expect_nothing_leaked(pair);
  }
}

// Texts of models that others wrote, by the options' own defaults.
TEST(CpuType, TheDefaultFollowsTheGoldenTextsOfF32AndF16Models) {
  int models = 0, steps = 0;
  const fs::path golden = fs::path(COPPICE_SOURCE_DIR) / "tests/golden/data";
  for (const auto& folder : fs::directory_iterator(golden)) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    const std::string why = choose_cpu_type(folder.path(), "auto").why;
    if (why.find("F32") == std::string::npos && why.find(" F16") == std::string::npos) continue;
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
