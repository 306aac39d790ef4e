// A GGUF file that is made of a model says what the model's own files say.
#include "models/gguf/quantise_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/pre_tokenizers.h"
#include "models/gguf/tensor_names.h"
#include "models/model_folder.h"
#include "models/requantised.h"
#include "models/settings/generation_settings.h"
#include "models/settings/template_settings.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/described_config.h"
#include "reference/files.h"
#include "reference/gguf_vocabulary.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

constexpr const char* chat_template =
    "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}";

Json bos_in_template() { return Json::object({{"SpecialToken", {{"id", "<s>"}}}}); }

/// The tokenizer.json that the golden vocabulary was taken from, with the words of a rule.
Json tokenizer_json(const Json& golden, const PreTokenizing& rules) {
  Json vocab = Json::object(), added = Json::array();
  for (std::size_t i = 0; i + 1 < golden["tokens"].size(); ++i) {
    vocab[golden["tokens"][i].get<std::string>()] = i;
    const int kind = golden["token_type"][i];
    if (kind == 1) continue;
    added.push_back({{"id", i},
                     {"content", golden["tokens"][i]},
                     {"special", kind == 3},
                     {"normalized", false}});
  }
  Json single = Json::array({{{"Sequence", {{"id", "A"}}}}});
  if (rules.adds_bos) single.insert(single.begin(), bos_in_template());
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", normalizer_of(rules)},
          {"pre_tokenizer", pre_tokenizer_of(rules)},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", single},
            {"special_tokens", {{"<s>", {{"ids", {1}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", rules.ignores_merges},
            {"vocab", vocab},
            {"merges", golden["merges"]}}}};
}

class QuantiseModel : public ::testing::Test {
 protected:
  /// A folder with the golden byte tokenizer.
  void write_folder(TinyModel model, const char* pre = "gpt-2") const {
    model.vocab_size = static_cast<std::int64_t>(bpe_["tokens"].size());
    model.eos_tokens = {2, 0, 3};  // those that any reader would find by their texts
    write_tiny_model(dir_, model);
    write_file(dir_ / "tokenizer.json", tokenizer_json(bpe_, *pre_tokenizing(pre)).dump());
    write_file(
        dir_ / "tokenizer_config.json",
        Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", chat_template}}.dump());
  }
  QuantisedModel quantise(WeightMix mix = WeightMix::q8_0) const {
    const auto made =
        quantise_model({.from = dir_, .to = out_, .mix = mix, .threads = 3, .progress = {}});
    EXPECT_TRUE(made);
    return made.value_or(QuantisedModel());
  }
  /// The one line of what is refused; nothing is left of the file then.
  std::string refusal(WeightMix mix = WeightMix::q8_0) const {
    const std::string message = error_of([&] { quantise(mix); });
    EXPECT_NE(message, "");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1)
        << message;
    return message;
  }
  void edit_json(const char* name, const std::function<void(Json&)>& change) const {
    Json json = Json::parse(bytes_of(dir_ / name));
    change(json);
    write_file(dir_ / name, json.dump());
  }
  void expect_refusal(const std::string& says) const {
    const std::string message = refusal();
    EXPECT_NE(message.find(says), message.npos) << message;
  }

  const Json bpe_ = gguf_golden("bpe"), pieces_ = gguf_golden("sentencepiece");
  const TemporaryFolder folder_;
  const fs::path dir_ = folder_.path() / "model", out_ = folder_.path() / "out.gguf";
};

std::vector<float> numbers(const WeightSource& source, const std::string& name) {
  const StoredTensor& tensor = *source.find(name);
  std::vector<std::byte> bytes(tensor.bytes);
  source.read(name, 0, bytes);
  std::vector<float> values(tensor.elements());
  dequantise(*format_named(tensor.dtype), bytes, values.data());
  return values;
}

/// Every number of the file is the folder's, but for the rounding of q8_0.
void expect_weights(const fs::path& dir, const fs::path& file) {
  const ModelFiles from(dir), to(file);
  for (const ParameterShape& parameter : parameter_shapes(from.config)) {
    const StoredWeights::Tensor& mine = from.weights.at(parameter.name);
    const StoredWeights::Tensor& its = to.weights.at(parameter.name);
    const std::vector<float> wanted = numbers(*from.source, mine.name);
    const std::vector<float> found = numbers(*to.source, its.name);
    ASSERT_EQ(wanted.size(), found.size()) << parameter.name;
    const bool is_norm = parameter.name.ends_with("norm.weight");
    const float one = is_norm && from.config.one_based_norms ? 1.0f : 0.0f;
    const std::size_t block = its.format == WeightFormat::q8_0 ? 32 : 1;
    EXPECT_EQ(block == 32, parameter.shape.size() == 2 && parameter.shape[1] % 32 == 0)
        << parameter.name;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      float most = 0.0f;
      for (std::size_t j = i / block * block; j < (i / block + 1) * block; ++j) {
        most = std::max(most, std::abs(wanted[j]));
      }
      // Half a step, and what the scale loses in 16 bits.
      const float tolerance = block == 1 ? 0.0f : most * (0.5f / 127.0f + 0x1p-11f);
      ASSERT_NEAR(wanted[i] + one, found[i], tolerance) << parameter.name << " " << i;
    }
  }
}

std::map<std::string, TinyModel> written_families() {
  std::map<std::string, TinyModel> all;
  const auto add = [&](const char* name, const char* architecture, const char* type,
                       const std::string& fields, const char* scaling = "null") {
    TinyModel& model = all[name];
    model.architecture = architecture;
    model.fields = cat("\"model_type\": \"", type, "\"", fields.empty() ? "" : ", ", fields);
    model.rope_scaling = scaling;
    model.layers = 4;
  };
  add("llama", "LlamaForCausalLM", "llama", "",
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64})");
  all["llama"].attention_bias = all["llama"].mlp_bias = true;
  all["llama"].dtype = DType::bf16;
  add("mistral", "MistralForCausalLM", "mistral", R"("sliding_window": null)");
  add("qwen2", "Qwen2ForCausalLM", "qwen2", "");
  all["qwen2"].tie_word_embeddings = true;
  all["qwen2"].dtype = DType::f16;
  add("qwen3", "Qwen3ForCausalLM", "qwen3", "",
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
          "beta_fast": 16.0})");
  add("gemma2", "Gemma2ForCausalLM", "gemma2",
      R"("sliding_window": 4, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0)");
  add("gemma3", "Gemma3ForCausalLM", "gemma3_text",
      R"("sliding_window": 3, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16,
         "rope_local_base_freq": 100.0)",
      R"({"rope_type": "linear", "factor": 8.0})");
  all["gemma3"].tie_word_embeddings = true;
  add("phi3", "Phi3ForCausalLM", "phi3",
      R"("partial_rotary_factor": 0.5, "original_max_position_embeddings": 32,
         "sliding_window": 5)",
      R"({"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6],
          "long_factor": [1.0, 2.0, 5.0, 11.0]})");
  add("smollm3", "SmolLM3ForCausalLM", "smollm3", "");
  return all;
}

TEST_F(QuantiseModel, SaysWhatTheFolderSays) {
  for (const auto& [name, model] : written_families()) {
    SCOPED_TRACE(name);
    write_folder(model);
    quantise();
    ModelConfig config = ModelFiles(dir_).config;
    if (name == "mistral") {
      config.architecture = "LlamaForCausalLM";  // its files call themselves so
      config.model_type = "llama";
    }
    ModelConfig found = ModelFiles(out_).config;
    if (name == "llama") {  // a quotient of floats is not every float
      const std::vector<float> mine = rope_frequencies(config.ropes[0], 1);
      const std::vector<float> its = rope_frequencies(found.ropes[0], 1);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        EXPECT_NEAR(its[i], mine[i], mine[i] * 0x1p-23f);
      }
      EXPECT_LT(its[3], 0.01f) << "scaled";
      found.ropes = config.ropes;
    }
    EXPECT_EQ(described(found), described(config));
    expect_weights(dir_, out_);
    fs::remove(out_);
    fs::remove_all(dir_);
  }
}

// What --target-weights q8_0 makes of the folder as it is loaded.
TEST_F(QuantiseModel, HoldsTheBlocksThatAFolderIsRoundedTo) {
  write_folder(written_families().at("llama"));
  quantise();
  const auto rounded = requantised(open_weights(dir_), WeightFormat::q8_0);
  const auto file = open_weights(out_);
  int blocks = 0;
  for (const std::string& name : rounded->names()) {
    const StoredTensor &mine = *rounded->find(name), &its = *file->find(name);
    if (mine.dtype != "Q8_0") continue;
    ASSERT_EQ(its.dtype, mine.dtype) << name;
    std::vector<std::byte> one(mine.bytes), other(its.bytes);
    rounded->read(name, 0, one);
    file->read(name, 0, other);
    EXPECT_EQ(one, other) << name;
    ++blocks;
  }
  EXPECT_EQ(blocks, 2 + 4 * 6);  // the FFN's way back has rows of 56
}

TEST_F(QuantiseModel, KeepsTokenizersOfBytes) {
  for (const auto& [name, ids] : bpe_["ids"].items()) {
    SCOPED_TRACE(name);
    write_folder(TinyModel{}, name.c_str());
    EXPECT_TRUE(quantise().lost.empty());
    const auto tokenizer = Tokenizer::load(out_);
    for (std::size_t i = 0; i < bpe_["texts"].size(); ++i) {
      const auto text = bpe_["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), ids[i].get<Ids>()) << text;
    }
    EXPECT_EQ(tokenizer->framed({}), bpe_["frames"][name].get<Ids>());
    Tokenizer::load(dir_)->require_same_pieces(*tokenizer, "folder", "file");
    fs::remove(out_);
  }
}

TEST_F(QuantiseModel, KeepsPiecesOfSentencepiece) {
  TinyModel model;
  model.vocab_size = static_cast<std::int64_t>(pieces_["tokens"].size());
  model.eos_tokens = {2};
  struct Case {
    const char* settings;
    bool marks;
    std::size_t lost;  ///< of what the class of Llama does its own way
  };
  for (const Case& one :
       {Case{R"("tokenizer_class": "LlamaTokenizer", "legacy": true)", true, 1},
        Case{R"("tokenizer_class": "LlamaTokenizer", "legacy": false)", true, 2},
        Case{R"("add_prefix_space": false, "tokenizer_class": "LlamaTokenizer")", true, 0},
        Case{R"("add_bos_token": false, "add_eos_token": true)", false, 0}}) {
    SCOPED_TRACE(one.settings);
    write_tiny_model(dir_, model);
    write_file(dir_ / "tokenizer.model", tokenizer_model(pieces_, one.marks));
    write_file(dir_ / "tokenizer_config.json",
               cat(R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", )",
                   one.settings, "}"));
    EXPECT_EQ(quantise().lost.size(), one.lost);
    const auto mine = Tokenizer::load(dir_), its = Tokenizer::load(out_);
    mine->require_same_pieces(*its, "folder", "file");
    for (const Json& text : pieces_["texts"]) {
      const auto plain = text.get<std::string>();
      if (one.lost > 0 && plain.starts_with(' ')) continue;
      if (one.lost > 1 && plain.find('<') != plain.npos) continue;
      if (one.marks && plain.find("\u2581") != plain.npos) continue;  // one that a user writes
      EXPECT_EQ(its->encode(plain), mine->encode(plain)) << plain;
    }
    EXPECT_EQ(its->framed({9}), mine->framed({9}));
    fs::remove(out_);
  }
}

// Tokens that stand behind a vocabulary, and rows that no token has.
TEST_F(QuantiseModel, KeepsAddedTokens) {
  TinyModel model;
  const auto size = static_cast<TokenId>(pieces_["tokens"].size()) - 1;
  model.vocab_size = size + 5;
  write_tiny_model(dir_, model);
  write_file(dir_ / "tokenizer.model", tokenizer_model(pieces_));
  write_file(dir_ / "tokenizer_config.json",
             Json{{"tokenizer_class", "LlamaTokenizer"},
                  {"legacy", true},
                  {"added_tokens_decoder",
                   {{std::to_string(size), {{"content", "<|user|>"}, {"special", true}}},
                    {std::to_string(size + 1),
                     {{"content", "<tool>"}, {"special", false}, {"normalized", false}}}}}}
                 .dump());
  quantise();
  const auto tokenizer = Tokenizer::load(out_);
  EXPECT_EQ(tokenizer->encode("<|user|><tool>"), Ids({size, size + 1}));
  EXPECT_EQ(tokenizer->decode(Ids{size, size + 1}), "<tool>");
  const GgufFile file(out_);
  EXPECT_EQ(file.metadata()["tokenizer.ggml.tokens"].size(), static_cast<std::size_t>(size) + 5);
  EXPECT_EQ(file.metadata()["tokenizer.ggml.token_type"].back(), 5) << "no token has this row";
}

TEST_F(QuantiseModel, KeepsTemplatesAndRecommendations) {
  write_folder(TinyModel{});
  edit_json("tokenizer_config.json", [](Json& config) {
    config["chat_template"] = {{{"name", "default"}, {"template", chat_template}},
                               {{"name", "tool_use"}, {"template", "tools"}}};
  });
  write_file(dir_ / "generation_config.json",
             R"({"do_sample": true, "temperature": 0.5, "top_p": 0.75, "stop_strings": ["\n"],
                 "max_new_tokens": 9})");
  const QuantisedModel made = quantise();
  EXPECT_EQ(read_template_settings(out_).source, chat_template);
  EXPECT_EQ(read_template_settings(out_, "tool_use").source, "tools");
  EXPECT_EQ(read_template_settings(out_).special_tokens,
            (std::vector<std::pair<std::string, std::string>>{{"bos_token", "<s>"},
                                                              {"eos_token", "</s>"}}));
  const GenerationSettings settings(out_);
  EXPECT_TRUE(settings.samples());
  EXPECT_EQ(settings.number("temperature", ""), 0.5);
  EXPECT_EQ(settings.number("top_p", ""), 0.75);
  EXPECT_EQ(settings.number("top_k", ""), 50.0) << "what is meant where it samples";
  EXPECT_EQ(made.lost,
            (std::vector<std::string>{
                "stop_strings of generation_config.json; give each as --stop TEXT",
                "max_new_tokens of generation_config.json; give it as --max-new-tokens"}));
}

TEST_F(QuantiseModel, MixesFormatsAsFilesOfThatNameDo) {
  TinyModel model;
  model.hidden_size = model.intermediate_size = 256;
  model.layers = 8;
  write_folder(model);
  const auto types = [&](WeightMix mix) {
    fs::remove(out_);
    quantise(mix);
    const GgufFile file(out_);
    EXPECT_EQ(file.metadata()["general.quantization_version"], 2);
    std::map<std::string, std::string> all;
    for (const auto& [name, tensor] : file.tensors()) {
      all[name] = std::string(name_of(file.format_of(name)));
    }
    return std::pair(all, file.metadata()["general.file_type"].get<int>());
  };
  const auto [mixed, type] = types(WeightMix::q4_k_m);
  EXPECT_EQ(type, 15);
  for (int layer = 0; layer < 8; ++layer) {
    const std::string at = cat("blk.", layer, ".");
    const bool more = layer == 0 || layer == 3 || layer == 6 || layer == 7;
    EXPECT_EQ(mixed.at(at + "attn_v.weight"), more ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(mixed.at(at + "ffn_down.weight"), more ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(mixed.at(at + "attn_q.weight"), "Q4_K");
    EXPECT_EQ(mixed.at(at + "ffn_up.weight"), "Q4_K");
    EXPECT_EQ(mixed.at(at + "attn_output.weight"), "Q5_0") << "rows of 64";
    EXPECT_EQ(mixed.at(at + "attn_norm.weight"), "F32");
  }
  EXPECT_EQ(mixed.at("token_embd.weight"), "Q4_K");
  EXPECT_EQ(mixed.at("output.weight"), "Q6_K");
  const auto [six, six_type] = types(WeightMix::q6_k);
  EXPECT_EQ(six_type, 18);
  EXPECT_EQ(six.at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(six.at("blk.1.attn_output.weight"), "Q8_0");
  const auto [four, four_type] = types(WeightMix::q4_0);
  EXPECT_EQ(four_type, 2);
  EXPECT_EQ(four.at("blk.0.attn_v.weight"), "Q4_0");
  EXPECT_EQ(four.at("output.weight"), "Q6_K");
  model.tie_word_embeddings = true;
  write_folder(model);
  EXPECT_EQ(types(WeightMix::q4_k_m).first.at("token_embd.weight"), "Q6_K");
}

/// A GGUF file of the folder's tensors as they are stored.
GgufBytes plain_file(const fs::path& dir, const Json& golden) {
  const ModelFiles model(dir);
  GgufBytes file = bpe_metadata(golden, "gpt-2", "llama");
  file.add("llama.attention.key_length", 16).add("llama.attention.value_length", 16);
  file.add("general.alignment", 64).add("general.name", "Original").add("split.count", 1);
  file.alignment = 64;
  for (const ParameterShape& parameter : parameter_shapes(model.config)) {
    const std::string& name = model.weights.at(parameter.name).name;
    const StoredTensor& stored = *model.source->find(name);
    std::string bytes(stored.bytes, '\0');
    model.source->read(name, 0, std::as_writable_bytes(std::span(bytes)));
    if (has_permuted_rows("llama", parameter.name)) {
      std::string moved = bytes;
      const std::size_t row = bytes.size() / stored.shape[0];
      for (std::size_t i = 0; i < stored.shape[0]; ++i) {
        const auto to = static_cast<std::size_t>(stored_row(static_cast<std::int64_t>(i), 16));
        moved.replace(to * row, row, bytes, i * row, row);
      }
      bytes = moved;
    }
    const std::vector<std::uint64_t> extents(stored.shape.rbegin(), stored.shape.rend());
    file.tensor(gguf_tensor_name(model.config, parameter.name), extents, 0, bytes);
  }
  return file;
}

TEST_F(QuantiseModel, TakesAGgufFile) {
  TinyModel model;
  model.hidden_size = 64;
  model.intermediate_size = 176;
  model.heads = 8;
  model.layers = 3;
  write_folder(model);
  const fs::path plain = dir_ / "plain.gguf";
  write_file(plain, plain_file(dir_, bpe_).bytes());
  ASSERT_TRUE(quantise_model({.from = plain, .to = out_, .mix = WeightMix::q8_0, .progress = {}}));
  expect_weights(dir_, out_);
  EXPECT_EQ(described(ModelFiles(out_).config), described(ModelFiles(plain).config));
  const GgufFile file(out_);
  EXPECT_EQ(file.metadata()["general.name"], "Original");
  EXPECT_FALSE(file.metadata().contains("split.count"));
  EXPECT_FALSE(file.metadata().contains("general.alignment"));
  EXPECT_EQ(Tokenizer::load(out_)->encode("The cat"), Tokenizer::load(plain)->encode("The cat"));
  const std::string again = error_of([&] {
    quantise_model(
        {.from = out_, .to = dir_ / "twice.gguf", .mix = WeightMix::q4_0, .progress = {}});
  });
  EXPECT_NE(again.find("is quantised already, to Q8_0; name the model in 16 or 32 bits"),
            again.npos)
      << again;
  EXPECT_FALSE(fs::exists(dir_ / "twice.gguf"));
}

TEST_F(QuantiseModel, LeavesNothingOfAFileThatIsNotWhole) {
  write_folder(TinyModel{});
  {
    const FileSizeLimit full(1 << 14);
    const std::string message = refusal();
    EXPECT_NE(message.find("out.gguf: File too large; free some space, or write elsewhere"),
              message.npos)
        << message;
  }
  int asked = 0;
  const auto made = quantise_model({.from = dir_, .to = out_, .progress = [&](double fraction) {
                                      EXPECT_GT(fraction, 0.0);
                                      EXPECT_LT(fraction, 1.0);
                                      return ++asked < 3;
                                    }});
  EXPECT_FALSE(made);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);

  write_file(out_, "old");  // while it was made
  const std::string taken = error_of([&] { quantise(); });
  EXPECT_NE(taken.find("out.gguf: File exists"), taken.npos) << taken;
  EXPECT_EQ(bytes_of(out_), "old");
  EXPECT_TRUE(
      quantise_model({.from = dir_, .to = out_, .existing = Existing::replace, .progress = {}}));
  EXPECT_TRUE(ModelFiles(out_).config.unsupported.empty());
}

TEST_F(QuantiseModel, RefusesWeightsThatAreNotFinite) {
  TinyModel model;
  write_folder(model);
  model.vocab_size = static_cast<std::int64_t>(bpe_["tokens"].size());
  std::vector<TensorToWrite> tensors = tiny_model_tensors(model);
  for (TensorToWrite& tensor : tensors) {
    if (tensor.name != "model.layers.1.self_attn.k_proj.weight") continue;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    tensor.bytes.replace(40, 4, reinterpret_cast<const char*>(&nan), 4);
  }
  write_file(dir_ / "model.safetensors", safetensors_bytes(tensors));
  expect_refusal("tensor model.layers.1.self_attn.k_proj.weight holds NaN or infinity");
}

TEST_F(QuantiseModel, RefusesWhatAFileCannotSay) {
  const auto with = [&](const char* family, const char* scaling, const std::string& fields) {
    TinyModel model = written_families().at(family);
    model.rope_scaling = scaling;
    model.fields = fields;
    write_folder(model);
  };
  with("mistral", "null", R"("sliding_window": 8)");
  expect_refusal("windows of attention in a MistralForCausalLM (sliding_window 8;");
  with("qwen2", "null",
       R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 1)");
  expect_refusal("windows of attention in a Qwen2ForCausalLM (sliding_window 3;");
  with("smollm3", "null", R"("no_rope_layers": [1, 0, 1, 1])");
  expect_refusal("no_rope_layers");
  with("gemma2", "null", R"("query_pre_attn_scalar": 8)");
  expect_refusal("query_pre_attn_scalar");
  with("gemma2", "null", R"("query_pre_attn_scalar": 16, "hidden_activation": "silu")");
  expect_refusal("the activation of this Gemma2ForCausalLM");
  with("qwen3", R"({"rope_type": "yarn", "factor": 4.0, "truncate": false})", "");
  expect_refusal("(truncate)");
  with("gemma3", "null", R"("query_pre_attn_scalar": 16, "rope_parameters": {
       "full_attention": {"rope_type": "default"},
       "sliding_attention": {"rope_type": "linear", "factor": 2.0}})");
  expect_refusal("scaled rotation in layers with a window");
  TinyModel biased = written_families().at("smollm3");
  biased.attention_bias = true;
  write_folder(biased);
  expect_refusal("biases of o_proj in a SmolLM3ForCausalLM");
  EXPECT_NE(refusal().find("; load the model itself, with --target-weights"), std::string::npos);
}

TEST_F(QuantiseModel, RefusesTokenizersThatAFileCannotName) {
  const auto with = [&](const char* pre, const std::function<void(Json&)>& change) {
    write_folder(TinyModel{}, pre);
    edit_json("tokenizer.json", change);
  };
  with("qwen2",
       [](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x"; });
  expect_refusal(
      "tokenizer.json: its normalizer and pre_tokenizer are none of those that GGUF files "
      "name: llama-bpe, ");
  with("qwen2", [](Json& json) { json["normalizer"] = {{"type", "NFKC"}}; });
  expect_refusal("tokenizer.json: its normalizer and pre_tokenizer are none");
  with("gpt-2",
       [](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["add_prefix_space"] = true; });
  expect_refusal("tokenizer.json: its normalizer and pre_tokenizer are none");
  with("gpt-2", [](Json& json) { json["model"]["unk_token"] = "<s>"; });
  expect_refusal("tokenizer.json: a GGUF file cannot say model.unk_token");
  with("gpt-2", [](Json& json) {
    Json& single = json["post_processor"]["single"];
    single.insert(single.begin(), 2, bos_in_template());
  });
  expect_refusal("puts 2 tokens around a text");
  with("gpt-2", [](Json& json) {
    const Json marks = {{"type", "Metaspace"},
                        {"replacement", "\u2581"},
                        {"prepend_scheme", "always"},
                        {"split", false}};
    json["pre_tokenizer"] = json["decoder"] = marks;
  });
  expect_refusal("tokenizer.json: no BPE of bytes, for which a GGUF file wants a tokenizer.model");
  fs::remove(dir_ / "tokenizer.json");
  expect_refusal("has neither tokenizer.json nor tokenizer.model");
  TinyModel small;
  write_tiny_model(dir_, small);
  write_file(dir_ / "tokenizer.json", tokenizer_json(bpe_, *pre_tokenizing("gpt-2")).dump());
  expect_refusal("its tokenizer has 1010 tokens, its model only 96 rows for them");
  fs::remove(dir_ / "tokenizer.json");
  SentencepieceProto unigram;
  unigram.type = 1;
  unigram.piece("<unk>", PieceKind::unknown).piece("a", PieceKind::normal);
  write_file(dir_ / "tokenizer.model", unigram.file());
  expect_refusal("tokenizer.model: no BPE");
  unigram.type = 2;
  unigram.normalizer = SentencepieceProto::bytes_field(1, "identity");
  unigram.normalizer += SentencepieceProto::number_field(4, 1);
  write_file(dir_ / "tokenizer.model", unigram.file());
  fs::remove(dir_ / "tokenizer_config.json");
  expect_refusal("tokenizer.model: it rewrites text before it looks for pieces");
}

// The golden vocabulary has a piece that no merge leads to: only who looks words up finds it.
TEST_F(QuantiseModel, TellsWhetherLookingWordsUpMatters) {
  write_folder(TinyModel{}, "llama-bpe");
  edit_json("tokenizer.json", [](Json& json) { json["model"]["ignore_merges"] = false; });
  expect_refusal("cannot say that model.ignore_merges is false with the words of llama-bpe");
  edit_json("tokenizer.json", [](Json& json) { json["model"]["vocab"].erase("uncounted"); });
  quantise();
  EXPECT_EQ(GgufFile(out_).metadata()["tokenizer.ggml.pre"], "llama-bpe");
}

}  // namespace
}  // namespace coppice::testing
