// A GGUF file's metadata say what the config.json says that it was made from.
#include "models/gguf/documents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/config.h"
#include "models/gguf/tensor_names.h"
#include "models/model_folder.h"
#include "models/rope_table.h"
#include "models/settings/folder_notes.h"
#include "models/settings/generation_settings.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"
#include "reference/described_config.h"
#include "reference/files.h"
#include "reference/gguf_file.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class GgufDocuments : public ::testing::Test {
 protected:
  fs::path put(const GgufBytes& bytes) const {
    write_file(folder_.path() / "m.gguf", bytes.bytes());
    return folder_.path() / "m.gguf";
  }
  ModelConfig read(const GgufBytes& bytes) const { return read_config(put(bytes)); }
  ModelConfig read_folder(const Json& config) const {
    write_file(folder_.path() / "config.json", config.dump());
    return read_config(folder_.path());
  }
  std::string refusal(const GgufBytes& bytes) const {
    const std::string message = error_of([&] { read(bytes); });
    EXPECT_NE(message.find("m.gguf: "), message.npos) << message;
    return message;
  }
  const TemporaryFolder folder_;
};

GgufBytes metadata_of(const std::string& architecture, int layers = 3) {
  GgufBytes file = shapes_of(architecture, layers);
  file.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  file.add("tokenizer.ggml.tokens",
           std::vector<std::string>{"a", "<s>", "</s>", "<|eot_id|>", "b"});
  file.add("tokenizer.ggml.token_type", std::vector<int>{1, 3, 3, 3, 1});
  file.add("tokenizer.ggml.bos_token_id", 1).add("tokenizer.ggml.eos_token_id", 2);
  return file;
}

/// The tensors that metadata are read from, without numbers.
void add_tensors(GgufBytes& file, bool tied, const std::vector<std::string>& more = {}) {
  file.tensor("token_embd.weight", {64, 96}, 1, std::string(2 * 64 * 96, '\0'));
  if (!tied) file.tensor("output.weight", {64, 96}, 1, std::string(2 * 64 * 96, '\0'));
  for (const std::string& name : more) file.floats(name, {0.0f});
}

Json config_of(const std::string& architecture, const std::string& type,
               const Json& more = Json::object()) {
  Json config = {{"architectures", {architecture}},
                 {"model_type", type},
                 {"hidden_size", 64},
                 {"intermediate_size", 176},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 2},
                 {"max_position_embeddings", 8192},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 500000.0},
                 {"head_dim", 8},
                 {"vocab_size", 96},
                 {"bos_token_id", 1},
                 {"eos_token_id", {2, 3}}};
  config.update(more);
  return config;
}

TEST_F(GgufDocuments, SayALlama) {
  GgufBytes file = metadata_of("llama");
  add_tensors(file, false);
  file.add("llama.rope.dimension_count", 8).add("llama.vocab_size", 96);
  EXPECT_EQ(described(read(file)), described(read_folder(config_of("LlamaForCausalLM", "llama"))));
  GgufBytes tied = metadata_of("llama");
  add_tensors(tied, true, {"blk.0.attn_q.bias", "blk.0.ffn_up.bias"});
  const Json more = {{"tie_word_embeddings", true}, {"attention_bias", true}, {"mlp_bias", true}};
  EXPECT_EQ(described(read(tied)),
            described(read_folder(config_of("LlamaForCausalLM", "llama", more))));
}

TEST_F(GgufDocuments, SayQwenAndSmolLM3) {
  for (const auto& [name, architecture] : {std::pair{"qwen2", "Qwen2ForCausalLM"},
                                           {"qwen3", "Qwen3ForCausalLM"},
                                           {"smollm3", "SmolLM3ForCausalLM"}}) {
    GgufBytes file = metadata_of(name, 5);
    add_tensors(file, true);
    Json more = {{"tie_word_embeddings", true}, {"num_hidden_layers", 5}};
    if (std::string(name) == "qwen3") {
      file.add("qwen3.attention.key_length", 16).add("qwen3.attention.value_length", 16);
      more["head_dim"] = 16;
    }
    EXPECT_EQ(described(read(file)), described(read_folder(config_of(architecture, name, more))));
  }
}

TEST_F(GgufDocuments, SayGemma) {
  for (const int layers : {7, 46, 62}) {
    for (const bool third : {false, true}) {
      const std::string name = third ? "gemma3" : "gemma2";
      GgufBytes file = metadata_of(name, layers);
      add_tensors(file, true);
      file.add(name + ".attention.key_length", 16).add(name + ".attention.value_length", 16);
      file.add(name + ".attention.sliding_window", 512);
      const bool is_27b = layers == (third ? 62 : 46);
      Json more = {{"num_hidden_layers", layers},
                   {"head_dim", 16},
                   {"sliding_window", 512},
                   {"tie_word_embeddings", true},
                   {"query_pre_attn_scalar", is_27b ? 8 : 16}};
      if (third) {
        file.add("gemma3.rope.scaling.type", "linear").add("gemma3.rope.scaling.factor", 8.0);
        more["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
      } else {
        file.add("gemma2.attn_logit_softcapping", 40.0);
        file.add("gemma2.final_logit_softcapping", 20.0);
        more["attn_logit_softcapping"] = 40.0;
        more["final_logit_softcapping"] = 20.0;
      }
      const ModelConfig config = read(file);
      EXPECT_FALSE(config.one_based_norms) << "the 1 is in the file's norms";
      const ModelConfig same =
          read_folder(third ? config_of("Gemma3ForCausalLM", "gemma3_text", more)
                            : config_of("Gemma2ForCausalLM", "gemma2", more));
      EXPECT_TRUE(same.one_based_norms);
      EXPECT_EQ(described(config), described(same)) << name << " " << layers;
    }
  }
  GgufBytes file = metadata_of("gemma3");
  add_tensors(file, true);
  file.add("gemma3.attention.sliding_window", 512).add("gemma3.rope.freq_base_swa", 20000.0);
  file.add_list("gemma3.attention.sliding_window_pattern", GgufBytes::boolean, 3, {1, 0, 1});
  const ModelConfig config = read(file);
  EXPECT_EQ(config.layer_specs[1].attention.window, 0);
  EXPECT_EQ(config.layer_specs[2].attention.window, 512);
  EXPECT_EQ(config.ropes[1].theta, 20000.0);
}

// Files say which layers have a window in several ways.
TEST_F(GgufDocuments, SayWhichLayersHaveAWindow) {
  const auto with = [](const std::string& name, const auto& pattern) {
    GgufBytes file = metadata_of(name, 4);
    file.add(name + ".attention.sliding_window", 512);
    return file.add(name + ".attention.sliding_window_pattern", pattern);
  };
  const auto windows = [&](const GgufBytes& file) {
    std::vector<int> found;
    for (const LayerSpec& layer : read(file).layer_specs) found.push_back(layer.attention.window);
    return found;
  };
  using Windows = std::vector<int>;
  for (const std::string name : {"gemma2", "gemma3"}) {
    EXPECT_EQ(windows(with(name, 3)), (Windows{512, 512, 0, 512}));
    EXPECT_EQ(windows(with(name, 1)), Windows(4, 0));
    EXPECT_EQ(windows(with(name, Windows{1, 0, 0, 1})), (Windows{512, 0, 0, 512}));
    for (const Windows& wrong : {Windows{1, 0, 2, 1}, Windows{1, 0, 1}}) {
      EXPECT_NE(refusal(with(name, wrong)).find("a list of block_count, 4"), std::string::npos);
    }
    EXPECT_NE(refusal(with(name, 0)).find("sliding_window_pattern is 0"), std::string::npos);
    EXPECT_NE(refusal(with(name, "3")).find("sliding_window_pattern is '3'"), std::string::npos);
  }
}

// Keys that an architecture has no part for are refused where their value would count.
TEST_F(GgufDocuments, NameKeysThatWouldChangeResults) {
  const auto unmet = [&](GgufBytes file, const char* key, const auto& value) {
    const ModelConfig config = read(file.add(key, value));
    return config.unsupported.empty() ? "" : config.unsupported.front();
  };
  const GgufBytes llama = metadata_of("llama");
  for (const char* key :
       {"llama.attn_logit_softcapping", "llama.final_logit_softcapping", "llama.logit_scale",
        "llama.residual_scale", "llama.embedding_scale", "llama.attention.scale",
        "llama.attention.clamp_kqv", "llama.rope.scaling.attn_factor"}) {
    EXPECT_EQ(unmet(llama, key, 0.0), "") << key;
    EXPECT_EQ(unmet(llama, key, 0.5),
              std::string(key) + " 0.5, which is no part of a LlamaForCausalLM here");
    EXPECT_NE(unmet(llama, key, std::vector<float>{0.0f}), "") << key;
  }
  EXPECT_EQ(unmet(llama, "llama.logit_scale", 1.0), "");
  EXPECT_EQ(unmet(llama, "llama.attention.scale", 1.0 / std::sqrt(8.0)), "") << "as it is";
  EXPECT_EQ(unmet(llama, "llama.attention.sliding_window", 8192), "") << "as long as the context";
  EXPECT_NE(unmet(llama, "llama.attention.sliding_window", 8191), "");
  EXPECT_EQ(unmet(llama, "llama.attention.causal", true), "");
  EXPECT_NE(unmet(llama, "llama.attention.causal", false), "");
  EXPECT_NE(unmet(llama, "llama.expert_used_count", 2), "");
  EXPECT_NE(unmet(metadata_of("phi3"), "phi3.final_logit_softcapping", 30.0), "");
  GgufBytes gemma = metadata_of("gemma2");
  gemma.add("gemma2.attention.sliding_window", 512);
  EXPECT_EQ(unmet(gemma, "gemma2.rope.freq_base_swa", 500000.0), "");
  EXPECT_NE(unmet(gemma, "gemma2.rope.freq_base_swa", 10000.0), "");
}

TEST_F(GgufDocuments, AreNotOfNumbersThatAreNone) {
  GgufBytes file = metadata_of("llama");
  file.add("llama.rope.scale_linear", std::nan(""));
  EXPECT_NE(refusal(file).find("'llama.rope.scale_linear' is NaN"), std::string::npos)
      << "else it counts as absent";
}

// What is no part of the model would not be looked at.
TEST_F(GgufDocuments, NameTensorsThatAreNoPartOfTheModel) {
  for (const char* name : {"layers.99.mlp.up_proj.weight", "blk.3.attn_q.weight",
                           "blk.0.rotary_emb.inv_freq", "model.embed_tokens.weight"}) {
    GgufBytes file = metadata_of("llama");
    add_tensors(file, true, {name});
    const fs::path path = put(file);
    EXPECT_NE(error_of([&] { ModelFiles files(path); })
                  .find(std::string("m.gguf: tensor '") + name +
                        "' is no part of the LlamaForCausalLM that its metadata describe"),
              std::string::npos)
        << name;
  }
  GgufBytes shape = metadata_of("llama");
  add_tensors(shape, true, {"blk.0.attn_norm.weight"});
  const fs::path path = put(shape);
  EXPECT_NE(error_of([&] { ModelFiles files(path); })
                .find("tensor blk.0.attn_norm.weight has the shape [1], but its metadata ask for "
                      "[64]; fetch the file again"),
            std::string::npos);
  const fs::path bare = put(metadata_of("llama"));
  EXPECT_NE(error_of([&] { ModelFiles files(bare); }).find("tensor token_embd.weight is missing"),
            std::string::npos);
}

// A description does not end with a token id that is none.
TEST_F(GgufDocuments, AreDescribedWithWrongTokenIds) {
  GgufBytes file = shapes_of("llama").add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  file.add("tokenizer.ggml.eos_token_id", "b");
  add_tensors(file, true);
  const std::string wrong = "m.gguf: tokenizer.ggml.eos_token_id is 'b', but must be an integer";
  EXPECT_NE(refusal(file).find(wrong), std::string::npos);
  const ModelFolder folder(put(file));
  EXPECT_EQ(folder.config.hidden_size, 64);
  ASSERT_FALSE(folder.obstacles.empty());
  EXPECT_NE(folder.obstacles.front().find(wrong), std::string::npos) << folder.obstacles.front();
  write_file(folder_.path() / "config.json",
             config_of("LlamaForCausalLM", "llama", {{"eos_token_id", "b"}}).dump());
  const ModelFolder other(folder_.path());
  EXPECT_EQ(other.config.hidden_size, 64);
  EXPECT_NE(other.wrong_ids.find("config.json: eos_token_id is 'b'"), std::string::npos);
}

TEST_F(GgufDocuments, SayPhi3) {
  GgufBytes file = metadata_of("phi3");
  add_tensors(file, false);
  file.add("phi3.attention.sliding_window", 2047).add("phi3.rope.dimension_count", 6);
  file.add("phi3.rope.scaling.original_context_length", 4096);
  file.add("phi3.rope.scaling.attn_factor", 1.040833);
  file.floats("rope_factors_long.weight", {1.5f, 2.5f, 3.5f});
  file.floats("rope_factors_short.weight", {1.0f, 1.25f, 1.75f});
  const Json more = {{"sliding_window", 2047},
                     {"partial_rotary_factor", 0.75},
                     {"original_max_position_embeddings", 4096},
                     {"rope_scaling",
                      {{"type", "longrope"},
                       {"long_factor", {1.5, 2.5, 3.5}},
                       {"short_factor", {1.0, 1.25, 1.75}}}}};
  EXPECT_EQ(described(read(file)),
            described(read_folder(config_of("Phi3ForCausalLM", "phi3", more))));
  for (const char* only : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    GgufBytes half = metadata_of("phi3");
    half.floats(only, {1.0f, 2.0f, 3.0f, 4.0f});
    EXPECT_NE(refusal(half).find(std::string("has the tensor ") + only + " but not rope_factors_"),
              std::string::npos);
  }
  GgufBytes plain = metadata_of("phi3");
  add_tensors(plain, false);
  plain.add("phi3.attention.sliding_window", 0);
  plain.add("phi3.rope.scaling.original_context_length", 8192);
  const Json none = {{"sliding_window", nullptr}, {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(described(read(plain)),
            described(read_folder(config_of("Phi3ForCausalLM", "phi3", none))));
}

// Any number of a head's elements is told as itself, whatever the quotient rounds to.
TEST_F(GgufDocuments, SayHowManyElementsAreRotated) {
  for (const auto& [rotated, head_dim] : {std::pair{30, 44}, {26, 46}, {62, 78}, {96, 128}}) {
    GgufBytes file = metadata_of("phi3");
    file.add("phi3.attention.key_length", head_dim).add("phi3.attention.value_length", head_dim);
    file.add("phi3.rope.dimension_count", rotated);
    EXPECT_EQ(read(file).ropes[0].rotated, rotated);
  }
}

TEST_F(GgufDocuments, SayScalingOfRotaryEmbedding) {
  const auto frequencies = [](const ModelConfig& config) {
    return rope_frequencies(config.ropes.at(0), 1);
  };
  GgufBytes linear = metadata_of("llama");
  linear.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.0);
  const ModelConfig plain = read(metadata_of("llama"));
  const std::vector<float> unscaled = frequencies(plain);
  EXPECT_EQ(frequencies(read(linear))[1], unscaled[1] / 4.0f);
  GgufBytes old = metadata_of("llama");
  EXPECT_EQ(frequencies(read(old.add("llama.rope.scale_linear", 2.0)))[1], unscaled[1] / 2.0f);
  GgufBytes none = metadata_of("llama");
  EXPECT_EQ(frequencies(read(none.add("llama.rope.scaling.type", "none"))), unscaled);

  GgufBytes yarn = metadata_of("qwen2");
  yarn.add("qwen2.rope.scaling.type", "yarn").add("qwen2.rope.scaling.factor", 4.0);
  yarn.add("qwen2.rope.scaling.original_context_length", 4096);
  add_tensors(yarn, false);
  const Json more = {
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}}};
  EXPECT_EQ(described(read(yarn)),
            described(read_folder(config_of("Qwen2ForCausalLM", "qwen2", more))));
  const double usual = read(yarn).ropes[0].attention_factor;
  yarn.add("qwen2.rope.scaling.attn_factor", 0.5);
  EXPECT_DOUBLE_EQ(read(yarn).ropes[0].attention_factor, usual / 2.0);

  GgufBytes other = metadata_of("llama");
  const ModelConfig refused = read(other.add("llama.rope.scaling.type", "spiral"));
  ASSERT_FALSE(refused.unsupported.empty());
  EXPECT_NE(refused.unsupported[0].find("rotary scaling of type 'spiral'"), std::string::npos);
}

// Llama 3.1's scaling is stored by its result.
TEST_F(GgufDocuments, SayFactorsOfFrequencies) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 2048}};
  const ModelConfig wanted =
      read_folder(config_of("LlamaForCausalLM", "llama", {{"rope_scaling", scaling}}));
  const std::vector<float> scaled = rope_frequencies(wanted.ropes[0], 1),
                           plain = rope_frequencies(read(metadata_of("llama")).ropes[0], 1);
  std::vector<float> factors;
  for (std::size_t i = 0; i < plain.size(); ++i) factors.push_back(plain[i] / scaled[i]);
  EXPECT_GT(factors[2], 1.0f);
  GgufBytes file = metadata_of("llama");
  file.floats("rope_freqs.weight", factors);
  const ModelConfig config = read(file);
  const std::vector<float> found = rope_frequencies(config.ropes[0], 1);
  ASSERT_EQ(found.size(), scaled.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], plain[i] / factors[i]);
    EXPECT_FLOAT_EQ(found[i], scaled[i]);
  }
  EXPECT_EQ(config.ropes[0].kind, RopeSpec::Kind::llama3);
  EXPECT_FLOAT_EQ(static_cast<float>(config.ropes[0].factor), 8.0f) << "as it is described";

  GgufBytes both = metadata_of("llama");
  both.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 2.0);
  both.floats("rope_freqs.weight", factors);
  EXPECT_EQ(read(both).unsupported.size(), 1u);
  GgufBytes few = metadata_of("llama");
  few.floats("rope_freqs.weight", {1.0f});
  EXPECT_NE(refusal(few).find("frequency_factors"), std::string::npos);
}

TEST_F(GgufDocuments, NameWhatIsMissingOrWrong) {
  const auto without = [](const std::string& key) {
    GgufBytes file;
    file.add("general.architecture", "llama");
    for (const char* one : {"block_count", "context_length", "embedding_length",
                            "feed_forward_length", "attention.head_count"}) {
      if (one != key) file.add(std::string("llama.") + one, 8);
    }
    if (key != "attention.layer_norm_rms_epsilon") {
      file.add("llama.attention.layer_norm_rms_epsilon", 1e-5);
    }
    return file;
  };
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    EXPECT_NE(refusal(without(key)).find(std::string("llama.") + key + " is missing"),
              std::string::npos);
  }
  GgufBytes nameless;
  EXPECT_NE(refusal(nameless).find("general.architecture is missing"), std::string::npos);
  EXPECT_NE(refusal(metadata_of("llama").add("llama.attention.key_length", "8"))
                .find("llama.attention.key_length is '8', but must be an integer"),
            std::string::npos);
  EXPECT_NE(refusal(metadata_of("llama").add("llama.attention.value_length", 4))
                .find("llama.attention.value_length is 4, but must be attention.key_length, 8"),
            std::string::npos);
  EXPECT_NE(refusal(metadata_of("llama").add("llama.rope.dimension_count", 16))
                .find("llama.rope.dimension_count is 16, but must be at most 8"),
            std::string::npos);
  const auto with = [](const char* key, int value) {
    GgufBytes file;
    file.add("general.architecture", "llama");
    for (const auto& [name, usual] : {std::pair{"llama.block_count", 3},
                                      {"llama.context_length", 64},
                                      {"llama.embedding_length", 64},
                                      {"llama.feed_forward_length", 64},
                                      {"llama.attention.head_count", 8},
                                      {"llama.attention.head_count_kv", 2},
                                      {"llama.attention.key_length", 8}}) {
      file.add(name, std::string(name) == key ? value : usual);
    }
    return file.add("llama.attention.layer_norm_rms_epsilon", 1e-5);
  };
  for (const auto& [key, value] : {std::pair{"llama.block_count", 5000},
                                   {"llama.embedding_length", 1 << 21},
                                   {"llama.feed_forward_length", 1 << 21},
                                   {"llama.attention.head_count", 1 << 15},
                                   {"llama.attention.head_count_kv", 3},
                                   {"llama.attention.key_length", 7}}) {
    EXPECT_NE(refusal(with(key, value)).find(cat(key, " is ", value, ", but must be ")),
              std::string::npos)
        << key;
  }
  GgufBytes pattern = metadata_of("gemma3");
  pattern.add_list("gemma3.attention.sliding_window_pattern", GgufBytes::boolean, 2, {1, 0});
  EXPECT_NE(refusal(pattern).find("must be a list of block_count, 3"), std::string::npos);
  GgufBytes wrong;
  wrong.add("general.architecture", "llama").add("tokenizer.ggml.model", "gpt2");
  wrong.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  wrong.add("tokenizer.ggml.token_type", std::vector<int>{1, 7});
  EXPECT_NE(refusal(wrong).find("tokenizer.ggml.token_type"), std::string::npos);
}

TEST_F(GgufDocuments, NameArchitecturesThatCannotBeRun) {
  GgufBytes file = metadata_of("qwen3moe");
  file.add("qwen3moe.expert_count", 128);
  const ModelConfig config = read(file);
  ASSERT_EQ(config.unsupported.size(), 1u);
  EXPECT_EQ(config.unsupported[0], "architecture 'qwen3moe': mixture of experts (num_experts 128)");
  EXPECT_EQ(config.hidden_size, 64);
  GgufBytes bare;
  EXPECT_NE(read(bare.add("general.architecture", "clip"))
                .unsupported.at(0)
                .find("architecture 'clip' (coppice runs "),
            std::string::npos);
  GgufBytes experts = metadata_of("llama");
  EXPECT_NE(read(experts.add("llama.expert_count", 8)).unsupported.at(0).find("mixture of experts"),
            std::string::npos);
}

TEST_F(GgufDocuments, SaySpecialTokensAndTemplates) {
  GgufBytes file = metadata_of("llama");
  add_tensors(file, false);
  file.add("tokenizer.ggml.add_bos_token", true).add("tokenizer.ggml.padding_token_id", 0);
  file.add("tokenizer.ggml.unknown_token_id", 99).add("tokenizer.chat_template", "{{ bos_token }}");
  file.add("llama.tomorrow", 0.5).add("llama.yesterday", std::vector<int>{1});
  file.add("general.sampling.temp", 0.6);
  const fs::path path = put(file);
  const TokenizerSettings settings = read_tokenizer_settings(path);
  EXPECT_EQ(*settings.find("bos_token"), "<s>");
  EXPECT_EQ(*settings.find("eos_token"), "</s>");
  EXPECT_EQ(settings.find("pad_token"), nullptr) << "\"a\" is an ordinary piece";
  EXPECT_EQ(settings.find("unk_token"), nullptr) << "there is no token 99";
  EXPECT_TRUE(settings.adds_bos && !settings.adds_eos);
  EXPECT_EQ(read_template_settings(path).source, "{{ bos_token }}");
  EXPECT_EQ(read_template_settings(path).where, path.string());
  EXPECT_NE(error_of([&] { read_template_settings(path, "tools"); }).find("none of the name"),
            std::string::npos);
  EXPECT_EQ(GenerationSettings(path).number("temperature", ""), static_cast<double>(0.6f));

  const SettingNotes notes = folder_notes(path, read_config(path));
  std::vector<std::string> ignored;
  for (const Setting& one : notes.not_obeyed) ignored.push_back(one.file + ": " + one.name);
  EXPECT_EQ(ignored,
            (std::vector<std::string>{"metadata: llama.tomorrow", "metadata: llama.yesterday"}));

  file.add("tokenizer.chat_template.tools", "t");
  put(file);
  EXPECT_EQ(read_template_settings(path, "tools").source, "t");
  EXPECT_EQ(read_template_settings(path).source, "{{ bos_token }}");
  const fs::path none = put(metadata_of("llama"));
  EXPECT_NE(error_of([&] { read_template_settings(none); }).find("tokenizer.chat_template"),
            std::string::npos);
  EXPECT_EQ(GenerationSettings(none).samples(), false);
}

TEST_F(GgufDocuments, NameTensors) {
  GgufBytes llama = metadata_of("llama"), gemma = metadata_of("gemma2"), phi = metadata_of("phi3");
  add_tensors(llama, false, {"blk.0.attn_q.bias"});
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> all;
    for (const ParameterShape& one : parameter_shapes(config)) {
      if (one.name.find("layers.") != one.name.npos && one.name.find("layers.2.") == one.name.npos)
        continue;
      all.push_back(gguf_tensor_name(config, one.name));
    }
    return all;
  };
  using Names = std::vector<std::string>;
  const ModelConfig config = read(llama);
  EXPECT_EQ(
      names(config),
      (Names{"token_embd.weight", "blk.2.attn_norm.weight", "blk.2.attn_q.weight",
             "blk.2.attn_q.bias", "blk.2.attn_k.weight", "blk.2.attn_k.bias", "blk.2.attn_v.weight",
             "blk.2.attn_v.bias", "blk.2.attn_output.weight", "blk.2.attn_output.bias",
             "blk.2.ffn_norm.weight", "blk.2.ffn_gate.weight", "blk.2.ffn_up.weight",
             "blk.2.ffn_down.weight", "output_norm.weight", "output.weight"}));
  EXPECT_EQ(names(read(gemma)),
            (Names{"token_embd.weight", "blk.2.attn_norm.weight", "blk.2.attn_q.weight",
                   "blk.2.attn_k.weight", "blk.2.attn_v.weight", "blk.2.attn_output.weight",
                   "blk.2.post_attention_norm.weight", "blk.2.ffn_norm.weight",
                   "blk.2.ffn_gate.weight", "blk.2.ffn_up.weight", "blk.2.ffn_down.weight",
                   "blk.2.post_ffw_norm.weight", "output_norm.weight"}));
  const ModelConfig stacked = read(phi);
  EXPECT_EQ(names(stacked),
            (Names{"token_embd.weight", "blk.2.attn_norm.weight", "blk.2.attn_qkv.weight",
                   "blk.2.attn_output.weight", "blk.2.ffn_norm.weight", "blk.2.ffn_up.weight",
                   "blk.2.ffn_down.weight", "output_norm.weight"}));
  EXPECT_EQ(gguf_tensor_name(read(metadata_of("qwen3")), "model.layers.11.self_attn.k_norm.weight"),
            "blk.11.attn_k_norm.weight");

  EXPECT_TRUE(has_permuted_rows("llama", "model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(has_permuted_rows("llama", "model.layers.0.self_attn.k_proj.bias"));
  EXPECT_FALSE(has_permuted_rows("llama", "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_FALSE(has_permuted_rows("phi3", "model.layers.0.self_attn.qkv_proj.weight"));
  EXPECT_FALSE(has_permuted_rows("qwen2", "model.layers.0.self_attn.q_proj.weight"));
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 12; ++row) rows.push_back(stored_row(row, 6));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

}  // namespace
}  // namespace coppice::testing
