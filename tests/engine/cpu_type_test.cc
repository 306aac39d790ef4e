// What the CPU computes in: by default F32 with weights in the checkpoint's own type.
#include "engine/cpu_type.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json_file.h"
#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "kernels/cpu/instruction_set.h"
#include "reference/naive_device.h"
#include "sizing/cost_table.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr KvDtype all_kv_dtypes[] = {KvDtype::automatic, KvDtype::f32, KvDtype::bf16, KvDtype::f16};

TEST(CpuType, IsF32UnlessBf16IsAskedFor) {
  EXPECT_EQ(cpu_type(EngineOptions().cpu_dtype), DType::f32);
  EXPECT_EQ(cpu_type(CpuDtype::f32), DType::f32);
  EXPECT_EQ(cpu_type(CpuDtype::bf16), DType::bf16);
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
    EXPECT_EQ(describe_cpu_types(folder.path() / name, CpuDtype::automatic),
              "weights " + kept + ", activations and sums F32");
    EXPECT_EQ(describe_cpu_types(folder.path() / name, CpuDtype::bf16),
              "weights and activations BF16, sums F32" +
                  (name == "BF16" ? "" : " (stored as " + name + ")"));
  }
  EXPECT_NE(describe_cpu_types(folder.path() / "nothing here", CpuDtype::f32).find("unknown"),
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
    options.device = DeviceKind::cpu;
    options.threads = 2;
    Engine pair = Engine::load(options);
    const std::size_t of_target_bytes = inside(pair).target.model->weight_bytes_read();
    const std::size_t of_draft_bytes = inside(pair).draft.model->weight_bytes_read();
    EXPECT_EQ(of_target_bytes < of_draft_bytes,
              of_target == DType::bf16 || (of_target == DType::f16 && cpu::has_native_f16()));
    options.draft.clear();
    Engine alone = Engine::load(options);

    const std::vector<TokenId> prompt = {1, 5, 9};
    GenerateOptions request;
    request.max_new_tokens = 24;
    request.ignore_eos = true;
    request.speculation = Dyspec{6};
    const Generation with_draft = pair.generate(prompt, request);
    EXPECT_EQ(with_draft.tokens.size(), 24u);
    EXPECT_EQ(with_draft.used.dtype, "f32");
    EXPECT_EQ(with_draft.tokens, alone.generate(prompt, request).tokens);
    testing::expect_nothing_leaked(pair);
  }
}

EngineOptions with_kv(EngineOptions options, KvDtype kv_dtype) {
  options.kv_dtype = kv_dtype;
  options.kv_tokens = 400;
  return options;
}

TEST(KvType, SixteenBitsHalveThePools) {
  if (testing::on_cuda()) GTEST_SKIP() << "a GPU keeps KV in what it computes in";
  const testing::TinyPair tiny;
  std::vector<TokenId> plain;
  for (const KvDtype asked : all_kv_dtypes) {
    const std::string type = name_of(asked);
    Engine engine = Engine::load(with_kv(tiny.options(), asked));
    Engine whole = Engine::load(with_kv(tiny.options(), KvDtype::f32));
    const bool halved = asked == KvDtype::bf16 || asked == KvDtype::f16;
    for (const auto member : {&Engine::Impl::target, &Engine::Impl::draft}) {
      const LoadedModel &model = inside(engine).*member, &exact = inside(whole).*member;
      EXPECT_EQ(model.pool->layout().slots(), exact.pool->layout().slots());
      EXPECT_EQ(model.pool->bytes() * (halved ? 2 : 1), exact.pool->bytes()) << type;
      EXPECT_EQ(name_of(model.model->device().kv_dtype()), halved ? type : "f32");
    }
    GenerateOptions request;
    request.max_new_tokens = 8;
    request.ignore_eos = true;
    request.speculation = Dyspec{6};
    const Generation made = engine.generate(std::vector<TokenId>{1, 5, 9}, request);
    EXPECT_EQ(made.used.kv_dtype, halved ? type : "f32");
    EXPECT_EQ(made.tokens.size(), 8u);
    testing::expect_nothing_leaked(engine);
  }
}

// What is kept costs other bytes, so measured costs are others.
TEST(KvType, CostsAreKeptByIt) {
  const testing::TinyPair tiny;
  std::set<std::string> fingerprints;
  const auto fingerprint = [&](KvDtype type) {
    Engine engine = Engine::load(with_kv(tiny.options(), type));
    return cost_fingerprint(*inside(engine).target.model, *inside(engine).draft.model);
  };
  if (testing::on_cuda()) GTEST_SKIP() << "a GPU has one";
  for (const KvDtype type : all_kv_dtypes) fingerprints.insert(fingerprint(type));
  EXPECT_EQ(fingerprints.size(), 3u);
  EXPECT_EQ(fingerprint(KvDtype::automatic), fingerprint(KvDtype::f32));
}

TEST(KvType, RefusesWhatTheDeviceDoesNotKeep) {
  const auto refused = [](const auto& body) {
    try {
      body();
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
  };
  EXPECT_EQ(asked_kv_type(KvDtype::automatic), std::nullopt);
  EXPECT_EQ(asked_kv_type(KvDtype::f16), DType::f16);
  // As a GPU does, this device keeps one type.
  const auto device = testing::make_naive_device();
  ASSERT_EQ(device->kv_dtype(), DType::f32);
  EXPECT_EQ(refused([&] { require_kv_type(KvDtype::automatic, *device); }), "");
  EXPECT_EQ(refused([&] { require_kv_type(KvDtype::f32, *device); }), "");
  const std::string why = refused([&] { require_kv_type(KvDtype::bf16, *device); });
  EXPECT_NE(why.find("kv dtype bf16"), std::string::npos) << why;
  EXPECT_NE(why.find("--device cpu"), std::string::npos) << why;
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
    options.device = DeviceKind::cpu;
    options.threads = 1;
    const auto about = read_json_object(folder.path() / "golden.json", 1 << 20);
    // LongRoPE's factors go by the positions that a model is loaded for.
    options.kv_tokens = about->value("positions", 0);
    Engine engine = Engine::load(options);
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
