// config.json and generation_config.json: variants, bad values, what is unsupported.
#include "models/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/model.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

const char* const plain = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 176, "max_position_embeddings": 2048,
  "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 1000,
  "bos_token_id": 1, "eos_token_id": 2})";

using Json = nlohmann::json;
using Kind = RopeSpec::Kind;
using Changes = std::vector<std::pair<std::string, std::string>>;

/// `plain` with the JSON values of some fields replaced or added; an empty one removes its field.
std::string with(const Changes& changes) {
  Json config = Json::parse(plain);
  for (const auto& [field, value] : changes) {
    if (value.empty()) {
      config.erase(field);
    } else {
      config[field] = Json::parse(value);
    }
  }
  return config.dump();
}
std::string with(const std::string& field, const std::string& value) {
  return with(Changes{{field, value}});
}

ModelConfig read(const std::string& config, const std::string& generation = {}) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", config);
  if (!generation.empty()) write_file(folder.path() / "generation_config.json", generation);
  return read_config(folder.path());
}

/// The message of the failure, checked to be one line that names the file.
std::string refusal(const std::string& config, const std::string& generation = {}) {
  try {
    read(config, generation);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_NE(message.find("config.json"), message.npos) << message;
    return message;
  }
  ADD_FAILURE() << "accepted: " << config;
  return {};
}

TEST(Config, ReadsAPlainLlama) {
  const ModelConfig config = read(plain);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 1000);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 176);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.context_length, 2048);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5f);
  ASSERT_EQ(config.ropes.size(), 1u);
  EXPECT_EQ(config.ropes[0].theta, 10000.0);
  EXPECT_EQ(config.ropes[0].kind, Kind::plain);
  EXPECT_EQ(config.ropes[0].rotated, 8);
  ASSERT_EQ(config.layer_specs.size(), 3u);
  EXPECT_EQ(config.layer_specs[2].rope, 0);
  EXPECT_EQ(config.layer_specs[2].attention, (AttentionRule{1.0f / std::sqrt(8.0f), 0.0f, 0}));
  EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.output_bias ||
               config.mlp_bias);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, std::vector<TokenId>{2});
  EXPECT_TRUE(config.unsupported.empty());
  // 2 tables, then per layer q, k, v, o, gate, up, down, 2 norms, then the last norm.
  EXPECT_EQ(parameter_count(config),
            2 * 64000 + 3 * (64 * 64 + 2 * 64 * 16 + 64 * 64 + 3 * 64 * 176 + 128) + 64);
}

TEST(Config, ReadsTheFamily) {
  ModelConfig config = read(with("head_dim", "16"));
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(read(with("head_dim", "null")).head_dim, 8);
  EXPECT_EQ(read(with("num_key_value_heads", "")).kv_heads, 8);
  EXPECT_TRUE(read(with("tie_word_embeddings", "true")).tie_word_embeddings);
  config = read(with("attention_bias", "true"));
  EXPECT_TRUE(config.qkv_bias && config.output_bias && !config.mlp_bias);
  EXPECT_TRUE(read(with("mlp_bias", "true")).mlp_bias);
  config = read(with("architectures", R"(["Qwen2ForCausalLM"])"));
  EXPECT_TRUE(config.qkv_bias && !config.output_bias && config.unsupported.empty());
  config = read(with("architectures", R"(["MistralForCausalLM"])"));
  EXPECT_TRUE(!config.qkv_bias && config.unsupported.empty());
  EXPECT_EQ(read(with("architectures", "")).architecture, "LlamaForCausalLM");
  EXPECT_EQ(read(with("torch_dtype", "\"anything\"")).unsupported.size(), 0u);
  EXPECT_EQ(read(with("rope_theta", "500000")).ropes[0].theta, 500000.0);
  EXPECT_EQ(read(with("hidden_act", "")).unsupported.size(), 0u);
}

// What transformers takes where a file leaves a field out, and null says otherwise.
TEST(Config, FieldsThatAreLeftOut) {
  struct Case {
    const char* architecture;
    std::int32_t kv_heads, head_dim;  // of 64 heads over a hidden_size of 512
    float epsilon;
  };
  const Case cases[] = {
      {"LlamaForCausalLM", 64, 8, 1e-6f},   {"MistralForCausalLM", 8, 8, 1e-6f},
      {"Qwen2ForCausalLM", 32, 8, 1e-6f},   {"Qwen3ForCausalLM", 32, 128, 1e-6f},
      {"Gemma2ForCausalLM", 4, 256, 1e-6f}, {"Gemma3ForCausalLM", 4, 256, 1e-6f},
      {"Phi3ForCausalLM", 64, 8, 1e-5f},    {"SmolLM3ForCausalLM", 4, 8, 1e-6f},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.architecture);
    Changes changes = {{"architectures", Json::array({one.architecture}).dump()},
                       {"hidden_size", "512"},
                       {"num_attention_heads", "64"},
                       {"num_key_value_heads", ""},
                       {"rms_norm_eps", ""}};
    ModelConfig config = read(with(changes));
    EXPECT_EQ(config.kv_heads, one.kv_heads);
    EXPECT_EQ(config.head_dim, one.head_dim);
    EXPECT_EQ(config.rms_norm_eps, one.epsilon);
    changes.push_back({"num_key_value_heads", "null"});
    EXPECT_EQ(read(with(changes)).kv_heads, 64);
  }
}

TEST(Config, ReadsRotarySettingsOldAndNew) {
  const auto rope = [](const std::string& field, const std::string& value) {
    const ModelConfig config = read(with(field, value));
    EXPECT_TRUE(config.unsupported.empty());
    return config.ropes.at(0);
  };
  RopeSpec read = rope("rope_scaling", R"({"type": "linear", "factor": 4.0})");
  EXPECT_EQ(read.kind, Kind::linear);
  EXPECT_EQ(read.factor, 4.0);
  const std::string llama3 =
      R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192)";
  read = rope("rope_scaling", llama3 + "}");
  EXPECT_EQ(read.kind, Kind::llama3);
  EXPECT_EQ(read.factor, 32.0);
  EXPECT_EQ(read.original_context, 8192);
  read = rope("rope_parameters", llama3 + R"(, "rope_theta": 500000.0})");
  EXPECT_EQ(read.kind, Kind::llama3);
  EXPECT_EQ(read.theta, 500000.0);
  read = rope("rope_parameters", R"({"rope_type": "default", "rope_theta": 5.0})");
  EXPECT_EQ(read.kind, Kind::plain);
  EXPECT_EQ(read.theta, 5.0);
  read = rope("rope_scaling", R"({"type": "yarn", "factor": 4.0, "beta_fast": 20,
      "original_max_position_embeddings": 1024})");
  EXPECT_EQ(read.kind, Kind::yarn);
  EXPECT_EQ(read.beta_fast, 20.0);
  EXPECT_EQ(read.beta_slow, 1.0);
  EXPECT_DOUBLE_EQ(read.attention_factor, 0.1 * std::log(4.0) + 1.0);
  read = rope("rope_scaling", R"({"type": "yarn", "factor": 4.0, "attention_factor": 0.5})");
  EXPECT_EQ(read.attention_factor, 0.5);
}

TEST(Config, YarnStretchesTheContext) {
  EXPECT_EQ(read(with("rope_scaling", R"({"type": "yarn", "factor": 4.0})")).context_length, 8192);
  EXPECT_EQ(read(with("rope_scaling", R"({"type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 512})"))
                .context_length,
            2048);
}

TEST(Config, EndTokensOfGenerationConfigStandInPlaceOfOthers) {
  EXPECT_EQ(read(with("eos_token_id", "[2, 7, 2]")).eos_tokens, (std::vector<TokenId>{2, 7}));
  EXPECT_EQ(read(plain, R"({"eos_token_id": [5, 9]})").eos_tokens, (std::vector<TokenId>{5, 9}));
  EXPECT_EQ(read(plain, R"({"eos_token_id": null})").eos_tokens, std::vector<TokenId>{2});
  EXPECT_EQ(read(plain, "{}").eos_tokens, std::vector<TokenId>{2});
  EXPECT_EQ(read(with("eos_token_id", ""), R"({"eos_token_id": 4})").eos_tokens,
            std::vector<TokenId>{4});
  EXPECT_TRUE(read(with("eos_token_id", "null")).eos_tokens.empty());
  EXPECT_EQ(read(with("bos_token_id", "null")).bos_token, -1);
  EXPECT_EQ(read(with("bos_token_id", "null"), R"({"bos_token_id": 3})").bos_token, 3);
}

TEST(Config, TakesIdsThatAFileLeavesOutFromTheFamily) {
  const auto ids = [](const char* architecture, const char* type, int vocabulary) {
    const ModelConfig config = read(with({{"architectures", architecture},
                                          {"model_type", type},
                                          {"vocab_size", std::to_string(vocabulary)},
                                          {"bos_token_id", ""},
                                          {"eos_token_id", ""}}));
    return std::pair(config.bos_token, config.eos_tokens);
  };
  using Ids = std::vector<TokenId>;
  const int all = 1 << 18;
  EXPECT_EQ(ids(R"(["LlamaForCausalLM"])", R"("llama")", all), std::pair(1, Ids{2}));
  EXPECT_EQ(ids(R"(["MistralForCausalLM"])", R"("mistral")", all), std::pair(1, Ids{2}));
  EXPECT_EQ(ids(R"(["Qwen2ForCausalLM"])", R"("qwen2")", all), std::pair(-1, Ids{}));
  EXPECT_EQ(ids(R"(["Qwen3ForCausalLM"])", R"("qwen3")", all), std::pair(-1, Ids{}));
  EXPECT_EQ(ids(R"(["Gemma2ForCausalLM"])", R"("gemma2")", all), std::pair(2, Ids{1}));
  EXPECT_EQ(ids(R"(["Gemma3ForCausalLM"])", R"("gemma3_text")", all), std::pair(2, Ids{1}));
  EXPECT_EQ(ids(R"(["Phi3ForCausalLM"])", R"("phi3")", all), std::pair(1, Ids{32000}));
  EXPECT_EQ(ids(R"(["SmolLM3ForCausalLM"])", R"("smollm3")", all), std::pair(128000, Ids{128001}));
  // What a small vocabulary does not have begins and ends nothing.
  EXPECT_EQ(ids(R"(["SmolLM3ForCausalLM"])", R"("smollm3")", 1000), std::pair(-1, Ids{}));
  EXPECT_EQ(ids("[]", R"("llama")", all), std::pair(1, Ids{2}));
}

TEST(Config, NegativeIdsAreNone) {
  EXPECT_TRUE(read(with("eos_token_id", "-1")).eos_tokens.empty());
  EXPECT_EQ(read(with("eos_token_id", "[-1, 7]")).eos_tokens, std::vector<TokenId>{7});
  EXPECT_EQ(read(with("bos_token_id", "-1")).bos_token, -1);
  EXPECT_TRUE(read(plain, R"({"eos_token_id": -1})").eos_tokens.empty());
}

TEST(Config, SaysWhatItCannotRun) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"architectures", R"(["GPT2LMHeadModel"])"},
      {"hidden_act", R"("gelu")"},
      {"rope_scaling", R"({"type": "dynamic", "factor": 2.0})"},
      {"rope_scaling", R"({"type": "mrope"})"},
      {"rope_parameters", R"({"full_attention": {"rope_type": "default"}})"},
      {"quantization_config", R"({"quant_method": "gptq", "bits": 3})"},
      {"quantization_config", R"({"quant_method": "bitsandbytes"})"},
      {"num_local_experts", "8"},
      {"partial_rotary_factor", "0.5"},
      {"final_logit_softcapping", "30.0"},
      {"layer_types", R"(["full_attention", "sliding_attention", "full_attention"])"},
      {"layer_types", R"(["linear_attention", "full_attention", "full_attention"])"},
      {"kv_lora_rank", "512"},
      {"draft_vocab_size", "500"},
  };
  for (const auto& [field, value] : cases) {
    const ModelConfig config = read(with(field, value));
    EXPECT_EQ(config.unsupported.size(), 1u) << field << " " << value;
    for (const std::string& sentence : config.unsupported) {
      EXPECT_EQ(sentence.find('\n'), sentence.npos);
    }
  }
  const ModelConfig hostile = read(with("architectures", R"(["a\nb\u001b[2J"])"));
  ASSERT_EQ(hostile.unsupported.size(), 1u);
  EXPECT_EQ(hostile.unsupported.front().find_first_of("\n\x1b"), std::string::npos);
  // A family with field names of its own.
  EXPECT_EQ(read(R"({"model_type": "gpt2", "n_embd": 768})").unsupported.size(), 1u);
  EXPECT_EQ(read("{}").unsupported.size(), 1u);
}

TEST(Config, NamesThePartThatItLacks) {
  const auto sentences = [](const std::string& config) { return read(config).unsupported; };
  using Sentences = std::vector<std::string>;
  EXPECT_EQ(sentences(R"({"architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 256,
                          "kv_lora_rank": 512})"),
            (Sentences{"architecture 'DeepseekV3ForCausalLM': mixture of experts "
                       "(n_routed_experts 256)",
                       "multi-head latent attention (kv_lora_rank 512)"}));
  EXPECT_EQ(sentences(R"({"architectures": ["Qwen3NextForCausalLM"],
                          "linear_num_value_heads": 32})"),
            (Sentences{"architecture 'Qwen3NextForCausalLM': linear attention "
                       "(linear_num_value_heads 32)"}));
  EXPECT_EQ(sentences(R"({"architectures": ["LlavaForConditionalGeneration"],
                          "vision_config": {}})"),
            (Sentences{"architecture 'LlavaForConditionalGeneration': vision (vision_config)"}));
}

/// The window of every layer.
std::vector<std::int32_t> windows(const std::string& architecture, Changes changes) {
  changes.emplace_back("architectures", "[\"" + architecture + "\"]");
  const ModelConfig config = read(with(changes));
  EXPECT_TRUE(config.unsupported.empty()) << config.unsupported.front();
  std::vector<std::int32_t> all;
  for (const LayerSpec& layer : config.layer_specs) all.push_back(layer.attention.window);
  return all;
}

TEST(Config, WindowsStandWhereTheyAct) {
  using Windows = std::vector<std::int32_t>;
  const std::string mistral = "MistralForCausalLM", qwen2 = "Qwen2ForCausalLM";
  const Windows none(3, 0), all(3, 64);
  EXPECT_EQ(windows(mistral, {{"sliding_window", "64"}}), all);
  EXPECT_EQ(windows(mistral, {{"sliding_window", "2048"}}), none);
  EXPECT_EQ(windows(mistral, {{"sliding_window", "null"}}), none);
  // transformers takes 4096 where a Mistral does not say.
  EXPECT_EQ(windows(mistral, {{"max_position_embeddings", "8192"}}), Windows(3, 4096));
  EXPECT_EQ(windows(qwen2, {{"sliding_window", "64"}}), none);
  const std::pair<std::string, std::string> window{"sliding_window", "64"};
  const std::pair<std::string, std::string> used{"use_sliding_window", "true"};
  EXPECT_EQ(windows(qwen2, {window, {"use_sliding_window", "false"}}), none);
  EXPECT_EQ(windows(qwen2, {window, used}), none);  // only from layer 28 on
  const std::pair<std::string, std::string> first{"max_window_layers", "0"};
  EXPECT_EQ(windows(qwen2, {used, first, {"sliding_window", "null"}}), none);
  EXPECT_EQ(windows(qwen2, {window, used, {"max_window_layers", "1"}}), (Windows{0, 64, 64}));
  EXPECT_EQ(
      windows("Qwen3ForCausalLM",
              {window,
               used,
               {"layer_types", R"(["sliding_attention", "full_attention", "sliding_attention"])"}}),
      (Windows{64, 0, 64}));
  EXPECT_EQ(windows("Gemma2ForCausalLM", {window}), (Windows{64, 0, 64}));
  EXPECT_EQ(windows("Gemma3ForCausalLM", {window, {"sliding_window_pattern", "3"}}),
            (Windows{64, 64, 0}));
  EXPECT_EQ(windows("Phi3ForCausalLM", {window}), all);
}

TEST(Config, ReadsWhatGemmasDoNotSay) {
  // As published: the settings of the text model that differ from the smallest one's.
  const ModelConfig config = read(R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "eos_token_id": [1, 106], "model_type": "gemma3", "vision_config": {"hidden_size": 1152},
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                      "model_type": "gemma3_text", "sliding_window": 1024,
                      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  EXPECT_TRUE(config.unsupported.empty());
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.context_length, 131072);
  EXPECT_EQ(config.eos_tokens, (std::vector<TokenId>{1, 106}));
  EXPECT_TRUE(config.tie_word_embeddings && config.scaled_embeddings && config.one_based_norms);
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[0].factor, 8.0);
  EXPECT_EQ(config.ropes[1].theta, 1e4);
  EXPECT_EQ(config.ropes[1].kind, Kind::plain);
  const LayerSpec &windowed = config.layer_specs[4], &full = config.layer_specs[5];
  EXPECT_EQ(windowed.attention, (AttentionRule{1.0f / 16.0f, 0.0f, 1024}));
  EXPECT_EQ(windowed.rope, 1);
  EXPECT_EQ(full.attention, (AttentionRule{1.0f / 16.0f, 0.0f, 0}));
  EXPECT_EQ(full.rope, 0);
  EXPECT_TRUE(full.head_norms && full.output_norms);
  EXPECT_EQ(full.activation, Activation::gelu_tanh);
}

TEST(Config, LongRopeNeedsItsFactors) {
  const auto phi = [](const std::string& scaling) {
    return with(Changes{{"architectures", R"(["Phi3ForCausalLM"])"},
                        {"partial_rotary_factor", "0.5"},
                        {"original_max_position_embeddings", "1024"},
                        {"rope_scaling", scaling}});
  };
  const RopeSpec rope =
      read(phi(R"({"type": "su", "short_factor": [1, 2], "long_factor": [3, 4]})")).ropes.at(0);
  EXPECT_EQ(rope.kind, Kind::longrope);
  EXPECT_EQ(rope.rotated, 4);
  EXPECT_EQ(rope.long_factors, (std::vector<double>{3, 4}));
  EXPECT_DOUBLE_EQ(rope.attention_factor, std::sqrt(1.0 + std::log(2.0) / std::log(1024.0)));
  EXPECT_NE(refusal(phi(R"({"type": "su", "short_factor": [1, 2, 3], "long_factor": [3, 4]})"))
                .find("short_factor"),
            std::string::npos);
  refusal(phi(R"({"type": "longrope", "short_factor": [1, 2], "long_factor": [3, -4]})"));
  refusal(phi(R"({"type": "longrope", "short_factor": [1, 2]})"));
}

TEST(Config, RefusesNonsense) {
  const std::vector<std::string> positive = {
      "vocab_size",          "hidden_size",         "intermediate_size",      "num_hidden_layers",
      "num_attention_heads", "num_key_value_heads", "max_position_embeddings"};
  for (const std::string& field : positive) {
    for (const char* value :
         {"0", "-1", "1.5", "\"64\"", "[64]", "true", "{}", "18446744073709551615",
          "9223372036854775807", "4294967296", "1e300"}) {
      const std::string message = refusal(with(field, value));
      EXPECT_NE(message.find(field), message.npos) << message;
    }
    if (field == "max_position_embeddings") {
      EXPECT_EQ(read(with(field, "")).context_length, 2048);  // as transformers has it
    } else if (field != "num_key_value_heads") {
      EXPECT_NE(refusal(with(field, "")).find("missing"), std::string::npos) << field;
    }
  }
  for (const char* value : {"0", "-1", "3", "1e6", "\"8\"", "8192"})
    refusal(with("head_dim", value));
  refusal(with("num_key_value_heads", "3"));
  refusal(with("num_attention_heads", "6"));
  refusal(with("hidden_size", "60"));
  for (const char* field : {"rms_norm_eps", "rope_theta"}) {
    for (const char* value : {"0", "-1e-5", "\"1e-5\"", "[]"}) refusal(with(field, value));
  }
  refusal(with("rms_norm_eps", "1e-60"));
  refusal(with("rms_norm_eps", "1e60"));
  for (const char* field : {"tie_word_embeddings", "attention_bias", "mlp_bias"}) {
    for (const char* value : {"1", "\"true\""}) refusal(with(field, value));
  }
  for (const char* value :
       {"1000", "\"2\"", "[2, 1000]", "[[2]]", "2.0", "1e30", "18446744073709551615"}) {
    refusal(with("eos_token_id", value));
    refusal(plain, std::string("{\"eos_token_id\": ") + value + "}");
  }
  refusal(with("bos_token_id", "1000"));
  refusal(with("architectures", "\"LlamaForCausalLM\""));
  refusal(with("architectures", "[3]"));
  refusal(with("model_type", "3"));
  refusal(with("hidden_act", "3"));
  refusal(with("rope_scaling", "3"));
  refusal(with("rope_scaling", R"({"type": "linear"})"));
  refusal(with("rope_scaling", R"({"type": "linear", "factor": -2})"));
  refusal(with("rope_scaling", R"({"type": 3})"));
  refusal(with("rope_scaling", R"({"type": "yarn", "factor": 4, "rope_theta": 1})"));
  // Numbers that are none in F32.
  refusal(with("rope_theta", "1e-300"));
  refusal(with("rope_theta", "1e300"));
  refusal(with("rope_scaling", R"({"type": "linear", "factor": 1e-300})"));
  refusal(with("rope_scaling", R"({"type": "linear", "factor": 1e300})"));
  refusal(with("rope_scaling", R"({"type": "linear", "factor": 1e-38, "rope_theta": 0.01})"));
  refusal(with("rope_scaling", R"({"rope_type": "llama3", "factor": 1e-300, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"));
  refusal(with("rope_scaling", R"({"type": "yarn", "factor": 1e-300})"));
  refusal(with("rope_scaling", R"({"type": "yarn", "factor": 4, "attention_factor": 1e-300})"));
  refusal(with("layer_types", R"(["full_attention"])"));
  refusal(with("layer_types", "3"));
  refusal(with("rope_scaling", R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"));
  refusal(with("rope_scaling", R"({"rope_type": "llama3", "factor": 8.0})"));
}

TEST(Config, RefusesWhatIsNoJson) {
  for (const char* text :
       {"", " ", "[]", "3", "null", "{", "{\"a\": 1,}", "{'a': 1}", "\xff\xfe", "{\"a\": \"\xff\"}",
        "{\"a\": NaN}", "{\"a\": 1e999}", "{\"vocab_size\": 3, \"vocab_size\": 4}", "{} {}"}) {
    refusal(text);
  }
  refusal(std::string("{}\0garbage", 10));
  refusal("{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}");
  EXPECT_THROW(read(plain, "[]"), Error);
  const TemporaryFolder folder;
  EXPECT_THROW(read_config(folder.path()), Error);
  EXPECT_THROW(read_config(folder.path() / "none"), Error);
  std::filesystem::create_directory(folder.path() / "config.json");
  EXPECT_THROW(read_config(folder.path()), Error);
}

TEST(Describe, CoversFoldersItCanAndCannotRun) {
  const TemporaryFolder folder;
  testing::TinyModel spec;
  spec.shards = 2;
  spec.dtype = DType::bf16;
  write_tiny_model(folder.path(), spec);
  ModelDescription description = describe_model(folder.path());
  EXPECT_TRUE(description.runs);
  std::string text = description.text;
  for (const char* part : {"LlamaForCausalLM", "2 files", "BF16", "4 heads of 16",
                           "runs this model, by token ids (--prompt-ids) only",
                           "no usable tokenizer", "256 tokens", "untied"}) {
    EXPECT_NE(text.find(part), text.npos) << part << " in\n" << text;
  }
  write_file(folder.path() / "config.json", R"({"architectures": ["GPT2LMHeadModel"]})");
  description = describe_model(folder.path());
  EXPECT_FALSE(description.runs);
  text = description.text;
  EXPECT_NE(text.find("GPT2LMHeadModel"), text.npos) << text;
  EXPECT_NE(text.find("cannot run"), text.npos) << text;
  EXPECT_NE(text.find("2 files"), text.npos) << text;
  std::filesystem::remove(folder.path() / "part-1.safetensors");
  text = describe_model(folder.path()).text;
  EXPECT_NE(text.find("this shard is missing"), text.npos) << text;
  EXPECT_THROW(describe_model(folder.path() / "none"), Error);
}

TEST(Describe, SaysWhatTellsAFamilyFromLlama) {
  const auto lines = testing::tiny_families();
  const auto expect = [&](const char* family, std::initializer_list<const char*> parts) {
    const TemporaryFolder folder;
    write_tiny_model(folder.path(), lines.at(family));
    const ModelDescription description = describe_model(folder.path());
    EXPECT_TRUE(description.runs);
    for (const char* part : parts) {
      EXPECT_NE(description.text.find(part), std::string::npos) << part << " in\n"
                                                                << description.text;
    }
  };
  expect("gemma2", {"GELU, norms before and after", "soft cap 2\n",
                    "window          4 tokens in 2 of 3 layers", "logits          soft cap 3"});
  expect("gemma3", {"q/k norm", "3 tokens in 2 of 3 layers", "linear scaling 8 in 1 of 3 layers",
                    "theta 100 in 2 of 3 layers"});
  expect("qwen3_yarn", {"q/k norm", "yarn scaling 4\n"});
  expect("phi3_longrope", {"8 of 16 elements", "long factors if loaded for more than 32 tokens"});
  expect("smollm3", {"theta 10,000 in 2 of 3 layers"});
}

}  // namespace
}  // namespace coppice
