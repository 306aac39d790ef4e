// Loading a model: progress, limits, and every way in which a folder can be wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "models/model.h"
#include "models/model_folder.h"
#include "reference/naive_device.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using testing::make_naive_device;
using testing::safetensors_bytes;
using testing::TemporaryFolder;
using testing::tiny_model_tensors;
using testing::TinyModel;
using testing::write_file;

class Loader : public ::testing::Test {
 protected:
  Loader() { write_tiny_model(dir_, spec_); }

  std::string refusal(const ModelOptions& options = {}) {
    const auto device = make_naive_device();
    try {
      Model::load(dir_, *device, options);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      EXPECT_EQ(message.find('\n'), message.npos) << message;
      EXPECT_NE(message.find(dir_.string()), message.npos) << message;
      return message;
    }
    return "loaded";
  }
  /// Writes the weights anew after `change` has seen each tensor; false drops it.
  void rewrite(const std::function<bool(testing::TensorToWrite&)>& change) {
    std::vector<testing::TensorToWrite> kept;
    for (auto& tensor : tiny_model_tensors(spec_)) {
      if (change(tensor)) kept.push_back(std::move(tensor));
    }
    write_file(dir_ / "model.safetensors", safetensors_bytes(kept));
  }
  void expect(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(message.find(part), message.npos) << message;
  }

  const TinyModel spec_;
  const TemporaryFolder folder_;
  const fs::path dir_ = folder_.path();
};

TEST_F(Loader, ReportsProgress) {
  const auto device = make_naive_device();
  std::vector<double> seen;
  const auto model = Model::load(dir_, *device, {}, [&](double done) { seen.push_back(done); });
  ASSERT_GT(seen.size(), 4u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GE(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
  EXPECT_EQ(model->options().max_logit_rows, model->options().max_rows);
  EXPECT_EQ(model->max_positions(), spec_.context_length);
  // The embedding table is not read whole; the head, of the same shape, is.
  const ModelConfig& config = model->config();
  const auto read = parameter_count(config) - config.vocab_size * config.hidden_size;
  EXPECT_EQ(model->weight_bytes_read(), static_cast<std::size_t>(read) * 4);
  const KvLayout layout = model->kv_layout(33, 16);
  EXPECT_EQ(layout.pages, 3);
  EXPECT_EQ(layout.layers, 2);
  EXPECT_THROW(model->kv_layout(0, 16), Error);
}

TEST_F(Loader, NamesAMissingTensor) {
  for (const auto& tensor : tiny_model_tensors(spec_)) {
    rewrite([&](auto& other) { return other.name != tensor.name; });
    expect(refusal(), {tensor.name.c_str(), "is missing"});
  }
}

TEST_F(Loader, NamesAWrongShape) {
  for (const auto& tensor : tiny_model_tensors(spec_)) {
    rewrite([&](auto& other) {
      if (other.name == tensor.name) {
        other.shape.back() /= 2;
        other.bytes.resize(other.bytes.size() / 2);
      }
      return true;
    });
    expect(refusal(), {tensor.name.c_str(), "config.json asks for"});
  }
  rewrite([&](auto& other) {
    if (other.name == "lm_head.weight") other.shape = {96 * 32};
    return true;
  });
  expect(refusal(), {"lm_head.weight", "[3072]", "[96, 32]"});
}

TEST_F(Loader, NamesAWrongDtype) {
  rewrite([&](auto& tensor) {
    if (tensor.name == "model.layers.1.mlp.up_proj.weight") tensor.dtype = "I32";
    return true;
  });
  expect(refusal(), {"model.layers.1.mlp.up_proj.weight", "I32", "convert"});
}

TEST_F(Loader, NamesTensorsThatAreNotFinite) {
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (const auto& tensor : tiny_model_tensors(spec_)) {
      rewrite([&](auto& other) {
        if (other.name == tensor.name) {
          std::memcpy(other.bytes.data() + other.bytes.size() - sizeof bad, &bad, sizeof bad);
        }
        return true;
      });
      expect(refusal(), {tensor.name.c_str(), "NaN or infinity"});
      EXPECT_EQ(refusal({.check_finite = false}), "loaded");
    }
  }
}

TEST(LoaderDtypes, FindsNonFiniteHalves) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::uint16_t exponent = dtype == DType::f16 ? 0x7c00 : 0x7f80;
    for (const bool negative : {false, true}) {
      for (const int fraction : {0, 1}) {
        const TemporaryFolder folder;
        TinyModel spec;
        spec.dtype = dtype;
        spec.tie_word_embeddings = true;
        write_tiny_model(folder.path(), spec);
        auto tensors = tiny_model_tensors(spec);
        const auto bits = static_cast<std::uint16_t>((negative ? 0x8000 : 0) | exponent | fraction);
        std::memcpy(tensors.front().bytes.data() + 2, &bits, 2);
        write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
        const auto device = make_naive_device();
        EXPECT_THROW(Model::load(folder.path(), *device), Error);
      }
    }
  }
}

TEST_F(Loader, FilesThatChangeWhileTheyAreReadAreRefused) {
  const auto weights = dir_ / "model.safetensors";
  const auto refused = [&](auto change) -> std::string {
    write_tiny_model(dir_, spec_);
    const auto device = make_naive_device();
    bool changed = false;
    try {
      Model::load(dir_, *device, {}, [&](double) {
        if (!changed) change();
        changed = true;
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  };
  expect(refused([&] { fs::resize_file(weights, fs::file_size(weights) / 2); }),
         {weights.c_str(), "became shorter while it was read"});
  expect(refused([&] {
           std::fstream(weights, std::ios::binary | std::ios::in | std::ios::out).seekp(2000)
               << "xxxx";
           fs::last_write_time(weights, fs::file_time_type::clock::now() + std::chrono::hours(1));
         }),
         {weights.c_str(), "was written to while it was read"});
  EXPECT_EQ(refused([&] {  // a new file in its place is another file
              fs::copy_file(weights, dir_ / "new");
              fs::rename(dir_ / "new", weights);
            }),
            "loaded");
}

TEST_F(Loader, IgnoresTensorsItDoesNotNeed) {
  auto tensors = tiny_model_tensors(spec_);
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, "\xff\xff\xff\xff"});
  tensors.push_back({"model.layers.2.mlp.up_proj.weight", "F32", {1}, "\xff\xff\xff\xff"});
  tensors.push_back({"extra", "I64", {1}, "12345678"});
  write_file(dir_ / "model.safetensors", safetensors_bytes(tensors));
  EXPECT_EQ(refusal(), "loaded");
}

TEST_F(Loader, NamesATensorThatTheGraphWouldNotLookAt) {
  auto tensors = tiny_model_tensors(spec_);
  tensors.push_back({"model.layers.1.self_attn.q_norm.weight", "F32", {1}, "1234"});
  write_file(dir_ / "model.safetensors", safetensors_bytes(tensors));
  expect(refusal(), {"model.layers.1.self_attn.q_norm.weight", "no part of the LlamaForCausalLM"});
}

TEST_F(Loader, NamesFilesThatAreMissingOrCut) {
  const auto weights = dir_ / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  expect(refusal(), {"model.safetensors", "truncated"});
  fs::resize_file(weights, 0);
  expect(refusal(), {"model.safetensors"});
  fs::remove(weights);
  expect(refusal(), {"neither model.safetensors"});
  fs::remove(dir_ / "config.json");
  expect(refusal(), {"config.json"});
}

// `coppice info` says what loading would, without reading the tensors.
TEST_F(Loader, HeadersTellWhatIsRefused) {
  const auto weights = dir_ / "model.safetensors";
  const auto expect_told = [&](const char* what) {
    const std::string loading = refusal();
    EXPECT_NE(loading.find(what), loading.npos) << loading;
    const ModelFolder folder(dir_);
    ASSERT_EQ(folder.obstacles.size(), 1u) << what;
    EXPECT_EQ(folder.obstacles.front(), loading);
    EXPECT_EQ(describe_model(dir_).runs, false);
  };
  EXPECT_TRUE(ModelFolder(dir_).obstacles.empty());
  rewrite([](auto& tensor) { return tensor.name != "model.norm.weight"; });
  expect_told("is missing");
  rewrite([](auto& tensor) {
    if (tensor.name == "model.layers.1.mlp.up_proj.weight")
      std::swap(tensor.shape[0], tensor.shape[1]);
    return true;
  });
  expect_told("config.json asks for");
  rewrite([](auto& tensor) {
    if (tensor.name == "lm_head.weight") tensor.dtype = "I32";
    return true;
  });
  expect_told("I32");
  auto tensors = tiny_model_tensors(spec_);
  tensors.push_back({"model.layers.1.mlp.gate_proj.bias", "F32", {1}, "1234"});
  write_file(weights, safetensors_bytes(tensors));
  expect_told("no part of the LlamaForCausalLM");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  expect_told("truncated");
  EXPECT_FALSE(ModelFolder(dir_).no_weights.empty());
  fs::remove(weights);
  expect_told("neither model.safetensors");
}

TEST_F(Loader, ATokenizerThatDoesNotBelongIsTold) {
  EXPECT_NE(ModelFolder(dir_).no_tokenizer, "");
  write_file(dir_ / "tokenizer.json", "{}");
  EXPECT_TRUE(ModelFolder(dir_).obstacles.empty()) << "token ids still work";
  fs::remove(dir_ / "tokenizer.json");
  write_file(dir_ / "tokenizer.model", "no model");
  ASSERT_EQ(ModelFolder(dir_).obstacles.size(), 1u);
  EXPECT_EQ(ModelFolder(dir_).obstacles.front(), ModelFolder(dir_).no_tokenizer);
  fs::remove(dir_ / "tokenizer.model");
  TinyModel few = spec_;
  few.vocab_size = 16;
  write_tiny_model(dir_, few);
  fs::copy_file(fs::path(COPPICE_SOURCE_DIR) / "models/stories/target/tokenizer.model",
                dir_ / "tokenizer.model");
  ASSERT_EQ(ModelFolder(dir_).obstacles.size(), 1u);
  expect(ModelFolder(dir_).obstacles.front(), {"4096 pieces", "only 16 vocabulary rows"});
}

TEST_F(Loader, SaysWhatItCannotRun) {
  write_file(dir_ / "config.json", R"({"architectures": ["FalconForCausalLM"]})");
  expect(refusal(), {"cannot run", "FalconForCausalLM"});
}

TEST_F(Loader, SaysThatMemoryIsTooSmall) {
  // 2^30 rows of several hundred floats each: beyond any machine that runs tests.
  expect(refusal({.max_rows = 1 << 30}), {"too little memory", "workspace", "available", "MiB"});
  const auto device = make_naive_device();
  EXPECT_THROW(Model::load(dir_, *device, {.max_rows = 0}), Error);
  EXPECT_THROW(Model::load(dir_, *device, {.max_positions = -1}), Error);
}

TEST_F(Loader, LimitsPositionsToTheContext) {
  const auto device = make_naive_device();
  EXPECT_EQ(Model::load(dir_, *device, {.max_positions = 10})->max_positions(), 10);
  EXPECT_EQ(Model::load(dir_, *device, {.max_positions = 1 << 20})->max_positions(), 256);
}

}  // namespace
}  // namespace coppice
