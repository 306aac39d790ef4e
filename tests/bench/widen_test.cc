// The wide model's folder: that it computes what the small one does, that a wrong one is noticed,
// what is in it, and what is left when it cannot be written.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/json_file.h"
#include "models/config.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/model_reference.h"
#include "reference/tiny_model.h"
#include "widened_folder.h"

namespace coppice::bench {
namespace {

namespace fs = std::filesystem;
using testing::ModelReference;
using testing::TemporaryFolder;
using testing::TinyModel;
using testing::write_tiny_model;

TinyModel tiny() {
  TinyModel model;
  model.dtype = DType::bf16;
  return model;
}

ModelShape widened(const TinyModel& from, std::int64_t hidden, std::int64_t ffn,
                   std::int64_t layers, std::int64_t heads, std::int64_t kv_heads) {
  return {from.vocab_size, hidden,   ffn,           layers,
          heads,           kv_heads, from.head_dim, from.context_length};
}

WideModel wide_model(const SmallModel& small, const ModelShape& shape,
                     ExtraLayers extra = ExtraLayers::random) {
  return {
      shape, wide_tensors(small.shape(), small.tied(), small.epsilon(), shape, extra), {{"r", 2}}};
}

std::vector<TokenId> prompt_of_20(std::int64_t vocab) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < 20; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i * 7 + i * 13 + 1) % vocab));
  }
  return tokens;
}

std::vector<std::vector<float>> f32_logits(const fs::path& dir,
                                           const std::vector<TokenId>& tokens) {
  testing::ChainRunner run(dir, testing::cpu(DType::f32), {.max_rows = 24});
  std::vector<std::int32_t> rows(tokens.size());
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<std::int32_t>(r);
  run.chain(tokens, {}, rows);
  return run.logits;
}

struct Differences {
  double f32 = 0.0, exact = 0.0;  ///< largest, in units of their tolerances
};

/// How far the logits of two folders are apart after each token of a prompt of 20, computed in F32
/// on the CPU and in double.
///
/// Each model's logits are within logit_tolerance() of its exact ones (chain_runner.h; six
/// deviations of rounding), whose unit is 2^-24 in F32 and, the reference being sums in sequence,
/// too, 2^-53 in double. Copies err alike and so do not average out, but what they err by is, like
/// the sums that they go into, what it is in the small model; the wide model's longer sums are in
/// its own tolerance. So two models that compute the same function differ by at most the sum of
/// both tolerances.
///
/// What E random layers add comes on top: 2 E times 2^-40 of values of deviation at most 1 each, to
/// a stream that after two layers has a deviation of about 1 or more (four additions of that size
/// to the embedding). The final norm passes relative changes on, so that logits of size rms move
/// by at most 6 * 2 E * 2^-40 * rms, at six deviations.
Differences differences(const fs::path& small, const fs::path& wide) {
  const ModelConfig small_config = read_config(small), wide_config = read_config(wide);
  const std::vector<TokenId> tokens = prompt_of_20(small_config.vocab_size);
  const auto small_exact = ModelReference(small).logits(tokens);
  const auto wide_exact = ModelReference(wide).logits(tokens);
  const auto small_f32 = f32_logits(small, tokens), wide_f32 = f32_logits(wide, tokens);
  Differences worst;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    double squares = 0.0;
    for (const double value : small_exact[t]) squares += value * value;
    const double rms = std::sqrt(squares / static_cast<double>(small_exact[t].size()));
    const double f32 = testing::logit_tolerance(small_config, DType::f32, rms) +
                       testing::logit_tolerance(wide_config, DType::f32, rms);
    const double extra = 12.0 * (wide_config.layers - small_config.layers) * 0x1p-40 * rms;
    for (std::size_t i = 0; i < small_exact[t].size(); ++i) {
      const double far = static_cast<double>(wide_f32[t][i]) - static_cast<double>(small_f32[t][i]);
      const double exactly = wide_exact[t][i] - small_exact[t][i];
      worst.f32 = std::max(worst.f32, std::fabs(far) / (f32 + extra));
      worst.exact = std::max(worst.exact, std::fabs(exactly) / (f32 * 0x1p-29 + extra));
    }
  }
  return worst;
}

struct Case {
  const char* name;
  TinyModel from;
  ModelShape shape;
};

std::vector<Case> cases() {
  TinyModel tied = tiny(), one_kv = tiny(), ungrouped = tiny(), scaled_rope = tiny();
  tied.tie_word_embeddings = true;
  one_kv.kv_heads = 1;
  ungrouped.kv_heads = 4;
  scaled_rope.rope_scaling = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";
  return {
      {"same shape", tiny(), widened(tiny(), 32, 56, 2, 4, 2)},
      {"twice", tiny(), widened(tiny(), 64, 112, 2, 8, 4)},
      {"three times", tiny(), widened(tiny(), 96, 168, 2, 12, 6)},
      {"one KV head for each query head", tiny(), widened(tiny(), 64, 112, 2, 8, 8)},
      {"larger groups", tiny(), widened(tiny(), 64, 112, 2, 16, 2)},
      {"uneven FFN copies", tiny(), widened(tiny(), 64, 129, 2, 8, 4)},
      {"uneven KV copies", tiny(), widened(tiny(), 64, 112, 2, 6, 3)},
      {"extra layers", tiny(), widened(tiny(), 64, 112, 5, 8, 4)},
      {"all of it", tiny(), widened(tiny(), 160, 301, 4, 10, 5)},
      {"tied", tied, widened(tied, 96, 112, 3, 8, 4)},
      {"from one KV head", one_kv, widened(one_kv, 64, 112, 2, 12, 3)},
      {"groups from none", ungrouped, widened(ungrouped, 64, 112, 2, 16, 8)},
      {"scaled rotation", scaled_rope, widened(scaled_rope, 64, 112, 2, 8, 4)},
  };
}

TEST(Widen, LogitsAreThoseOfTheSmallModel) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder;
    write_tiny_model(folder.path() / "small", c.from);
    const SmallModel small(folder.path() / "small");
    EXPECT_FALSE(small.rounds());
    for (const ExtraLayers extra : {ExtraLayers::random, ExtraLayers::zero}) {
      const fs::path wide = folder.path() / (extra == ExtraLayers::zero ? "zero" : "random");
      write_wide_model(small, wide_model(small, c.shape, extra), wide);
      const Differences worst = differences(folder.path() / "small", wide);
      EXPECT_LT(worst.f32, 1.0);
      EXPECT_LT(worst.exact, 1.0);
    }
  }
}

/// Largest difference of F32 logits after each token of a prompt of 20, over the largest logit.
double relative_difference(const fs::path& small, const fs::path& wide) {
  const std::vector<TokenId> tokens = prompt_of_20(read_config(small).vocab_size);
  const auto wanted = f32_logits(small, tokens), got = f32_logits(wide, tokens);
  double largest = 0.0, difference = 0.0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < wanted[t].size(); ++i) {
      const auto value = static_cast<double>(wanted[t][i]);
      largest = std::max(largest, std::fabs(value));
      difference = std::max(difference, std::fabs(static_cast<double>(got[t][i]) - value));
    }
  }
  return difference / largest;
}

WideTensor& tensor_of(WideModel& wide, const std::string& name) {
  for (WideTensor& tensor : wide.tensors) {
    if (tensor.tensor.name == name) return tensor;
  }
  throw std::logic_error("no tensor " + name);
}

// In the families that norm more than Llama does. An epsilon of 1e-5 that is off by 2 changes a
// stream whose elements are near 1 by 1e-5; all else is exact but for the order of sums. What any
// of the tensors holds matters by far more.
TEST(Widen, LogitsOfOtherFamiliesAreThoseOfTheSmallModel) {
  constexpr double tolerance = 1e-4, noticed = 1e-3;
  for (const ShapeFamily family : {ShapeFamily::qwen3, ShapeFamily::gemma3}) {
    const bool is_gemma = family == ShapeFamily::gemma3;
    SCOPED_TRACE(is_gemma ? "Gemma 3" : "Qwen 3");
    const TemporaryFolder folder;
    write_tiny_model(folder.path() / "small", tiny());
    const SmallModel small(folder.path() / "small");
    ModelShape shape = widened(tiny(), 96, 129, 8, 8, 4);
    shape.family = family;
    shape.window = 20;  // sees all of the prompt
    if (is_gemma) shape.head_dim *= 2;
    int written = 0;
    const auto difference = [&](const WideModel& wide) {
      const fs::path to = folder.path() / std::to_string(written++);
      write_wide_model(small, wide, to);
      return relative_difference(folder.path() / "small", to);
    };
    EXPECT_LT(difference(wide_model(small, shape)), tolerance);
    std::vector<std::string> norms = {"self_attn.q_norm", "self_attn.k_norm"};
    if (is_gemma)
      norms.insert(norms.end(), {"post_attention_layernorm", "post_feedforward_layernorm"});
    for (const std::string& norm : norms) {
      WideModel wide = wide_model(small, shape);
      tensor_of(wide, "model.layers.1." + norm + ".weight").tensor.norm *= 1.5f;
      EXPECT_GT(difference(wide), noticed) << norm;
    }
    if (!is_gemma) continue;
    shape.window = 5;
    EXPECT_GT(difference(wide_model(small, shape)), noticed) << "a window of 5";
  }
}

Copying& changed(WideModel& wide, const std::string& name) {
  for (WideTensor& tensor : wide.tensors) {
    if (tensor.tensor.name != name) continue;
    const auto copy = std::make_shared<Copying>(*tensor.copying);
    tensor.copying = copy;
    return *copy;
  }
  throw std::logic_error("no tensor " + name);
}

void swap_ends(std::vector<std::int32_t>& rows, std::int32_t head_dim) {
  std::swap_ranges(rows.begin(), rows.begin() + head_dim, rows.end() - head_dim);
}

void without_factor(WideModel& wide, const std::string& kind) {
  for (WideTensor& tensor : wide.tensors) {
    if (!tensor.copying && tensor.tensor.name.find(kind) != std::string::npos) tensor.factor = 1.0f;
  }
}

TEST(Widen, PlantedFaultsAreNoticed) {
  const TemporaryFolder folder;
  const TinyModel model = tiny();
  write_tiny_model(folder.path() / "small", model);
  const SmallModel small(folder.path() / "small");
  const std::string layer = "model.layers.1.";
  std::map<std::string, std::function<void(WideModel&)>> faults;
  for (const std::string name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    faults["one scale of " + name + " not halved"] = [=](WideModel& wide) {
      changed(wide, layer + name + ".weight").columns[5].scale *= 2.0f;
    };
  }
  faults["one scale of the head not halved"] = [](WideModel& wide) {
    changed(wide, "lm_head.weight").columns[5].scale *= 2.0f;
  };
  faults["query heads in the wrong group"] = [&](WideModel& wide) {
    swap_ends(changed(wide, layer + "self_attn.q_proj.weight").rows, model.head_dim);
    auto& columns = changed(wide, layer + "self_attn.o_proj.weight").columns;
    std::swap_ranges(columns.begin(), columns.begin() + model.head_dim,
                     columns.end() - model.head_dim);
  };
  faults["keys of another head"] = [&](WideModel& wide) {
    swap_ends(changed(wide, layer + "self_attn.k_proj.weight").rows, model.head_dim);
  };
  faults["a unit read as its neighbour"] = [&](WideModel& wide) {
    auto& columns = changed(wide, layer + "mlp.down_proj.weight").columns;
    std::swap(columns[0].source, columns[1].source);
  };
  faults["a stream element written as its neighbour"] = [&](WideModel& wide) {
    auto& rows = changed(wide, "model.layers.0.mlp.down_proj.weight").rows;
    std::swap(rows[0], rows[1]);
  };
  faults["attention of the extra layer counts"] = [](WideModel& wide) {
    without_factor(wide, "o_proj");
  };
  faults["FFN of the extra layer counts"] = [](WideModel& wide) {
    without_factor(wide, "down_proj");
  };
  for (const auto& [name, plant] : faults) {
    SCOPED_TRACE(name);
    WideModel wide = wide_model(small, widened(model, 64, 112, 3, 8, 4));
    plant(wide);
    const TemporaryFolder out;
    write_wide_model(small, wide, out.path());
    const Differences worst = differences(folder.path() / "small", out.path());
    EXPECT_GT(worst.f32, 10.0);
    EXPECT_GT(worst.exact, 10.0);
  }
}

std::string slurp(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void expect_live_rows(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor& tensor = file.tensors().at(name);
  const std::vector<std::byte> bytes = file.read(tensor);
  const std::size_t width = tensor.shape.back(), rows = tensor.elements() / width;
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < width; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * (row * width + i), 2);
      ASSERT_NE(bits & 0x7f80u, 0x7f80u) << name << ": not finite";
      zeros += (bits & 0x7fffu) == 0 ? 1 : 0;
    }
    // Rounding makes a zero now and then, never many.
    ASSERT_LT(zeros * 8, width) << name << ", row " << row;
  }
}

TEST(Widen, TheFolderIsWholeAndOrdinary) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path() / "small", tiny());
  testing::write_file(folder.path() / "small/tokenizer.model", "pieces");
  testing::write_file(folder.path() / "small/generation_config.json", "{\"eos_token_id\": 2}");
  testing::write_file(folder.path() / "small/training.log", "not copied");
  const SmallModel small(folder.path() / "small");
  const ModelShape shape = widened(tiny(), 64, 129, 4, 8, 4);
  const WideModel wide = wide_model(small, shape);
  const fs::path out = folder.path() / "new/wide";
  write_wide_model(small, wide, out, {}, 50'000);

  EXPECT_EQ(slurp(out / "tokenizer.model"), "pieces");
  EXPECT_EQ(slurp(out / "generation_config.json"), "{\"eos_token_id\": 2}");
  EXPECT_FALSE(fs::exists(out / "training.log"));
  const auto index = read_json_object(out / "model.safetensors.index.json", 1 << 20);
  const auto& map = index->at("weight_map");
  EXPECT_EQ(index->at("metadata").at("total_size"), wide.tensors.back().tensor.end());
  EXPECT_EQ(map.size(), wide.tensors.size());
  std::set<std::string> files;
  for (const auto& [name, file] : map.items()) files.insert(file);
  EXPECT_GT(files.size(), 4u);
  std::size_t number = 0, tensors = 0;
  std::set<std::string> seen;
  for (const std::string& file : files) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", ++number, files.size());
    EXPECT_EQ(file, name);
    const SafetensorsFile shard(out / file);  // refuses gaps and overlaps
    if (shard.tensors().size() > 1) {
      EXPECT_LT(shard.size(), 52'000u);
    }
    for (const auto& [tensor, stored] : shard.tensors()) {
      ++tensors;
      seen.insert(tensor);
      EXPECT_EQ(map.at(tensor), file);
      EXPECT_EQ(stored.dtype, "BF16");
      expect_live_rows(shard, tensor);
    }
    EXPECT_NE(slurp(out / file).find("{\"__metadata__\":{\"format\":\"pt\"}"), std::string::npos);
  }
  EXPECT_EQ(tensors, wide.tensors.size());
  EXPECT_EQ(seen.size(), tensors);

  const ModelConfig config = read_config(out);
  EXPECT_TRUE(config.unsupported.empty());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 129);
  EXPECT_EQ(config.layers, 4);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_FALSE(config.tie_word_embeddings);
  const auto json = read_json_object(out / "config.json", 1 << 20);
  EXPECT_EQ(json->at("torch_dtype"), "bfloat16");
  EXPECT_EQ(json->at("coppice_widened").at("r"), 2);
  EXPECT_EQ(2 * parameter_count(config),
            static_cast<std::int64_t>(wide.tensors.back().tensor.end()));
}

TEST(Widen, F32WeightsAreRoundedOnce) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TinyModel model = tiny();
    model.dtype = dtype;
    const fs::path dir = folder.path() / name_of(dtype);
    write_tiny_model(dir / "small", model);
    const SmallModel small(dir / "small");
    EXPECT_EQ(small.rounds(), dtype == DType::f32);
    write_wide_model(small, wide_model(small, widened(model, 64, 112, 3, 8, 4)), dir / "wide");
  }
  const fs::path file = "wide/model-00001-of-00001.safetensors";
  EXPECT_EQ(slurp(folder.path() / name_of(DType::f32) / file),
            slurp(folder.path() / name_of(DType::bf16) / file));
}

TEST(Widen, OtherModelsAreRefused) {
  const TemporaryFolder folder;
  const auto expect_refused = [&](const TinyModel& model, const std::string& says,
                                  const std::function<void(const fs::path&)>& spoil = {}) {
    const TemporaryFolder dir;
    write_tiny_model(dir.path(), model);
    if (spoil) spoil(dir.path());
    try {
      SmallModel small(dir.path());
      ADD_FAILURE() << "accepted, though " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  TinyModel model = tiny();
  model.attention_bias = true;
  expect_refused(model, "biases");
  model = tiny();
  model.architecture = "Qwen2ForCausalLM";
  expect_refused(model, "Qwen2ForCausalLM");
  model = tiny();
  model.dtype = DType::f16;
  expect_refused(model, "neither BF16 nor F32");
  expect_refused(tiny(), "neither model.safetensors",
                 [](const fs::path& dir) { fs::remove(dir / "model.safetensors"); });
  expect_refused(tiny(), "config.json",
                 [](const fs::path& dir) { fs::remove(dir / "config.json"); });
  expect_refused(tiny(), "model.layers.2.input_layernorm.weight is missing",
                 [](const fs::path& dir) {
                   TinyModel deeper = tiny();
                   deeper.layers = 3;
                   testing::write_file(dir / "config.json", testing::tiny_model_config(deeper));
                 });
  expect_refused(tiny(), "another shape", [](const fs::path& dir) {
    TinyModel wider = tiny();
    wider.intermediate_size = 64;
    testing::write_file(dir / "config.json", testing::tiny_model_config(wider));
  });
  expect_refused(tiny(), "beyond bf16", [](const fs::path& dir) {
    auto tensors = testing::tiny_model_tensors(tiny());
    tensors[4].bytes[7] = '\x7f';  // an exponent of all ones
    tensors[4].bytes[6] = '\x80';
    testing::write_file(dir / "model.safetensors", testing::safetensors_bytes(tensors));
  });
}

TEST(Widen, NothingIsLeftOfAFolderThatCouldNotBeWritten) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path() / "small", tiny());
  fs::create_directory(folder.path() / "small/tokenizer.model");  // cannot be copied as a file
  const SmallModel small(folder.path() / "small");
  const WideModel wide = wide_model(small, widened(tiny(), 64, 112, 2, 8, 4));
  EXPECT_THROW(write_wide_model(small, wide, folder.path() / "wide"), Error);
  EXPECT_FALSE(fs::exists(folder.path() / "wide"));
  fs::create_directory(folder.path() / "wide");  // not ours to remove
  EXPECT_THROW(write_wide_model(small, wide, folder.path() / "wide"), Error);
  EXPECT_TRUE(fs::is_empty(folder.path() / "wide"));
}

TEST(Widen, AFailureOrAnInterruptEndsTheWriters) {
  const TemporaryFolder folder;
  const std::vector<Tensor> tensors = tensors_of({96, 64, 56, 2, 4, 2, 16, 256});
  const auto write = [&](const FillTensor& fill, const BytesWritten& progress) {
    write_tensor_file(folder.path() / "file", tensors, {}, fill, progress);
  };
  EXPECT_THROW(write([](std::size_t, std::uint64_t,
                        std::span<std::uint16_t>) { throw_failure("unreadable"); },
                     {}),
               Error);
  std::atomic<bool> asked = false;
  const auto slow = [&](std::size_t, std::uint64_t, std::span<std::uint16_t>) {
    while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  EXPECT_THROW(write(slow,
                     [&](std::uint64_t) {
                       asked = true;
                       throw std::runtime_error("interrupted");
                     }),
               std::runtime_error);
}

#ifdef WIDEN_BINARY
TEST(Widen, TheProgramSaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string small = (folder.path() / "small").string();
  const std::string out = (folder.path() / "out").string();
  write_tiny_model(small, tiny());
  const auto run = [&](const std::string& before, const std::string& arguments, int code,
                       const std::string& says) {
    const std::string command = before + "'" + WIDEN_BINARY + "' " + arguments + " >'" +
                                (folder.path() / "stdout").string() + "' 2>'" +
                                (folder.path() / "stderr").string() + "'";
    const int status = std::system(command.c_str());
    const std::string error = slurp(folder.path() / "stderr");
    EXPECT_TRUE(WIFEXITED(status)) << arguments;
    EXPECT_EQ(WEXITSTATUS(status), code) << arguments << "\n" << error;
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), code == 0 ? 0 : 1) << error;
    EXPECT_NE((code == 0 ? slurp(folder.path() / "stdout") : error).find(says), std::string::npos)
        << arguments << "\n"
        << error;
  };
  const std::string pair = small + " " + out;
  const std::string shape = " --layers 3 --heads 8 --kv-heads 4 --ffn 112";
  run("", "", 2, "SOURCE");
  run("", "--help", 0, "llama-2-7b");
  run("", small + " llama-9 " + out, 2, "llama-9");
  run("", pair, 2, "SOURCE, SHAPE and OUT");
  run("", pair + " --hidden 64", 2, "give all of");
  run("", small + " llama-2-7b " + out + " --hidden 64" + shape, 2, "takes no SHAPE");
  run("", pair + " --hidden 0" + shape, 2, "at least 1");
  run("", pair + " --hidden many" + shape, 2, "many");
  run("", pair + " --width 64" + shape, 2, "width");
  run("", pair + " --hidden 48" + shape, 1, "hidden size 48");
  run("", small + "er llama-2-7b " + out, 1, "smaller");
  run("", small + " " + small + " --hidden 64" + shape, 1, "not empty");
  run("", small + " " + small + "/config.json --hidden 64" + shape, 1, "is a file");
  run("ulimit -f 100; ", pair + " --hidden 64" + shape, 1, "File too large");
  EXPECT_FALSE(fs::exists(out));
  run("", pair + " --hidden 64" + shape, 0, "2 times 32");
  run("", pair + " --hidden 64" + shape, 1, "not empty");
}
#endif

}  // namespace
}  // namespace coppice::bench
