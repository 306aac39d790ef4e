// Setting files of a model folder: every key that is obeyed, and that others are named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"
#include "models/config.h"
#include "models/model_folder.h"
#include "models/settings/folder_notes.h"
#include "models/settings/generation_settings.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;
using Files = std::map<std::string, std::string>;

/// A folder with these files.
class Folder {
 public:
  explicit Folder(const Files& files) {
    for (const auto& [name, text] : files) {
      fs::create_directories((folder_.path() / name).parent_path());
      write_file(folder_.path() / name, text);
    }
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

Names names_of(const std::vector<Setting>& settings) {
  Names names;
  for (const Setting& one : settings) names.push_back(one.name);
  std::sort(names.begin(), names.end());
  return names;
}

Names ignored_by(const std::string& generation) {
  const Folder folder(Files{{"generation_config.json", generation}});
  return names_of(GenerationSettings(folder.path()).notes().not_obeyed);
}

/// The message of the failure that `call` throws, checked to be one line.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(GenerationSettings, NamesWhatChangesATextAndIsNotObeyed) {
  const std::map<std::string, std::string> changing = {
      {"suppress_tokens", "[1]"},
      {"begin_suppress_tokens", "[1, 2]"},
      {"bad_words_ids", "[[1], [2, 3]]"},
      {"forced_bos_token_id", "0"},
      {"forced_eos_token_id", "2"},
      {"sequence_bias", "[[[1], 2.0]]"},
      {"no_repeat_ngram_size", "3"},
      {"min_length", "5"},
      {"max_length", "4096"},
      {"max_time", "1.5"},
      {"num_beams", "4"},
      {"num_return_sequences", "2"},
      {"penalty_alpha", "0.6"},
      {"guidance_scale", "1.5"},
      {"token_healing", "true"},
      {"exponential_decay_length_penalty", "[5, 1.1]"},
      {"watermarking_config", R"({"bias": 2.0})"},
      {"a_setting_of_tomorrow", "1"}};
  for (const auto& [key, value] : changing) {
    EXPECT_EQ(ignored_by("{\"" + key + "\": " + value + "}"), Names{key}) << key;
    EXPECT_EQ(ignored_by("{\"" + key + "\": null}"), Names{}) << key;
  }
  // Values that change nothing are no loss.
  EXPECT_EQ(ignored_by(R"({"suppress_tokens": [], "bad_words_ids": [], "no_repeat_ngram_size": 0,
      "min_length": 0, "num_beams": 1, "num_return_sequences": 1, "guidance_scale": 1.0,
      "length_penalty": 1.0, "typical_p": 1.0, "token_healing": false})"),
            Names{});
  // Filters of sampling where it samples.
  for (const char* key : {"typical_p", "epsilon_cutoff", "eta_cutoff", "top_h"}) {
    const std::string value = std::string("\"") + key + "\": 0.5";
    EXPECT_EQ(ignored_by("{" + value + "}"), Names{}) << key;
    EXPECT_EQ(ignored_by("{\"do_sample\": true, " + value + "}"), Names{key}) << key;
  }
  // What describes, or chooses between ways to the same text.
  EXPECT_EQ(ignored_by(R"({"transformers_version": "5.0", "use_cache": true, "pad_token_id": 0,
      "bos_token_id": 1, "eos_token_id": 2, "cache_implementation": "hybrid",
      "output_scores": true, "assistant_early_exit": 4, "num_assistant_tokens": 5,
      "_from_model_config": true, "temperature": 0.5, "top_p": 0.9, "max_new_tokens": 5,
      "min_new_tokens": 2})"),
            Names{});
}

TEST(GenerationSettings, HasTheNumbersThatTransformersWouldUse) {
  const Folder sampled(Files{{"generation_config.json", R"({"do_sample": true, "top_p": 0.9})"}});
  const GenerationSettings settings(sampled.path());
  EXPECT_TRUE(settings.samples());
  EXPECT_EQ(settings.number("top_p", "top-p"), 0.9);
  EXPECT_EQ(settings.number("top_k", "top-k"), 50.0);  // its own default
  EXPECT_EQ(settings.number("min_p", "min-p"), std::nullopt);
  const auto top_k = [](const std::string& text) {
    const Folder folder(Files{{"generation_config.json", text}});
    return GenerationSettings(folder.path()).number("top_k", "top-k");
  };
  EXPECT_EQ(top_k(R"({"do_sample": true, "top_k": 0})"), 0.0);
  EXPECT_EQ(top_k(R"({"do_sample": true, "top_k": null})"), 50.0);
  EXPECT_EQ(top_k("{}"), std::nullopt);
  const std::string message = refusal([&] { top_k(R"({"top_k": "many"})"); });
  EXPECT_TRUE(holds(message, "generation_config.json: top_k 'many'") && holds(message, "--top-k"))
      << message;
}

// As transformers makes the settings of a folder without generation_config.json from config.json.
TEST(GenerationSettings, AreInConfigWhereTheFolderHasNoOther) {
  const std::string old =
      R"({"repetition_penalty": 1.3, "suppress_tokens": [2], "hidden_size": 8})";
  const Folder alone(Files{{"config.json", old}});
  const GenerationSettings settings(alone.path());
  EXPECT_EQ(settings.file(), "config.json");
  EXPECT_EQ(settings.number("repetition_penalty", "repetition-penalty"), 1.3);
  EXPECT_EQ(names_of(settings.notes().not_obeyed), Names{"suppress_tokens"});
  const Folder both(Files{{"config.json", old}, {"generation_config.json", "{}"}});
  EXPECT_EQ(GenerationSettings(both.path()).number("repetition_penalty", ""), std::nullopt);
  EXPECT_EQ(names_of(GenerationSettings(both.path()).notes().not_obeyed), Names{});
}

std::vector<std::string> added_by(const Files& files) {
  const Folder folder(files);
  std::vector<std::string> contents;
  for (const AddedTokenSetting& token : read_tokenizer_settings(folder.path()).added) {
    if (!token.only_if_known) contents.push_back(token.content);
  }
  return contents;
}

TEST(TokenizerSettings, FindTokensInEveryFile) {
  const std::string config = "tokenizer_config.json", map = "special_tokens_map.json";
  EXPECT_EQ(added_by({{"added_tokens.json", R"({"b": 9, "a": 8})"}}), (Names{"a", "b"}));
  EXPECT_EQ(added_by({{config, R"({"added_tokens_decoder": {"10": {"content": "b"},
      "9": {"content": "a"}}})"},
                      {"added_tokens.json", R"({"c": 11})"},
                      {map, R"({"pad_token": "d"})"}}),
            (Names{"a", "b"}));
  EXPECT_EQ(added_by({{config, R"({"extra_special_tokens": ["a", {"content": "b"}]})"}}),
            (Names{"a", "b"}));
  EXPECT_EQ(added_by({{config, R"({"extra_special_tokens": {"image_token": "a"}})"}}), Names{"a"});
  EXPECT_EQ(added_by({{config, R"({"additional_special_tokens": ["a"]})"}}), Names{"a"});
  EXPECT_EQ(added_by({{map, R"({"extra_special_tokens": ["a"], "eos_token": "e"})"}}),
            (Names{"e", "a"}));
  EXPECT_EQ(added_by({{config, R"({"pad_token": "p", "bos_token": {"content": "b"},
      "video_token": "v"})"}}),
            (Names{"b", "p", "v"}));
  EXPECT_EQ(added_by({{config, R"({"pad_token": null})"}}), Names{});
}

TEST(TokenizerSettings, KeepFlagsOfTokens) {
  const Folder folder(Files{{"tokenizer_config.json", R"({"added_tokens_decoder": {
      "4": {"content": "a", "lstrip": true, "special": true},
      "5": {"content": "b", "rstrip": true, "single_word": true, "normalized": false}}})"}});
  const TokenizerSettings settings = read_tokenizer_settings(folder.path());
  ASSERT_EQ(settings.added.size(), 2u);
  const AddedTokenSetting &a = settings.added[0], &b = settings.added[1];
  EXPECT_TRUE(a.lstrip && !a.rstrip && a.special && !a.normalized && !a.single_word);
  EXPECT_TRUE(!b.lstrip && b.rstrip && !b.special && !b.normalized && b.single_word);
  EXPECT_EQ(a.id, TokenId{4});
}

TEST(TokenizerSettings, NameWhatTransformersWouldNotReadEither) {
  const Folder folder(
      Files{{"tokenizer_config.json",
             R"({"added_tokens_decoder": {"3": {"content": "a"}}, "pad_token": "p",
                            "split_special_tokens": true, "model_max_length": 512,
                            "clean_up_tokenization_spaces": false, "padding_side": "left"})"},
            {"added_tokens.json", R"({"a": 3, "b": 4})"},
            {"special_tokens_map.json", R"({"pad_token": "p", "eos_token": "e"})"}});
  Names named;
  for (const Setting& one : read_tokenizer_settings(folder.path()).notes.not_obeyed) {
    named.push_back(one.file + ": " + one.name);
  }
  std::sort(named.begin(), named.end());
  EXPECT_EQ(named, (Names{"added_tokens.json: b", "special_tokens_map.json: eos_token",
                          "tokenizer_config.json: split_special_tokens"}));
}

TEST(TokenizerSettings, RefuseDamageByName) {
  const std::vector<std::pair<std::string, std::string>> damaged = {
      {"tokenizer_config.json", R"({"legacy": "no"})"},
      {"tokenizer_config.json", R"({"add_prefix_space": 1})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": [1]})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "a"}}})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"text": "a"}}})"},
      {"tokenizer_config.json",
       R"({"added_tokens_decoder": {"1": {"content": "a", "lstrip": 1}}})"},
      {"tokenizer_config.json", R"({"extra_special_tokens": "a"})"},
      {"tokenizer_config.json", R"({"bos_token": 1})"},
      {"special_tokens_map.json", R"({"additional_special_tokens": [1]})"},
      {"added_tokens.json", R"({"a": "1"})"},
      {"added_tokens.json", R"({"a": -1})"},
      {"added_tokens.json", "[]"}};
  for (const auto& [file, text] : damaged) {
    // additional_special_tokens of the map are read beside a tokenizer.json.
    const Folder folder(Files{{file, text}, {"tokenizer.json", "{}"}});
    const std::string message = refusal([&] { read_tokenizer_settings(folder.path()); });
    EXPECT_TRUE(holds(message, file)) << text << ": " << message;
  }
}

TEST(TemplateSettings, FilesStandBeforeKeys) {
  const std::string config = R"({"chat_template": "key", "bos_token": "<s>"})";
  const Files folder = {{"tokenizer_config.json", config},
                        {"chat_template.jinja", "own"},
                        {"additional_chat_templates/tools.jinja", "tools"},
                        {"additional_chat_templates/notes.txt", "none"}};
  const auto source = [](const Files& files, const std::string& name = "") {
    const Folder laid(files);
    return read_template_settings(laid.path(), name).source;
  };
  EXPECT_EQ(source({{"tokenizer_config.json", config}}), "key");
  EXPECT_EQ(source(folder), "own");
  EXPECT_EQ(source(folder, "default"), "own");
  EXPECT_EQ(source(folder, "tools"), "tools");
  const Folder laid(folder);
  EXPECT_EQ(names_of(template_notes(laid.path()).not_obeyed), Names{"chat_template"});
  EXPECT_EQ(read_template_settings(laid.path()).special_tokens,
            (std::vector<std::pair<std::string, std::string>>{{"bos_token", "<s>"}}));
  EXPECT_TRUE(holds(refusal([&] { read_template_settings(laid.path(), "rag"); }),
                    "use one of default, tools"));
  const Folder none(Files{});
  EXPECT_TRUE(holds(refusal([&] { read_template_settings(none.path()); }), "no chat template"));
}

TEST(SettledHead, IsTheStoredOneUnlessItsValuesAreTheTables) {
  TinyModel model;
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), model);
  Json config = read_json_object(folder.path() / "config.json", 1 << 20).edit();
  config["tie_word_embeddings"] = true;
  write_file(folder.path() / "config.json", config.dump());
  EXPECT_FALSE(ModelFiles(folder.path()).config.tie_word_embeddings);
  const ModelFolder described(folder.path());
  EXPECT_EQ(described.obstacles, Names{});
  const auto& obeyed = described.settings.obeyed;
  EXPECT_TRUE(std::any_of(obeyed.begin(), obeyed.end(), [](const Setting& one) {
    return one.name == "tie_word_embeddings" && holds(one.value, "lm_head.weight");
  }));

  std::vector<TensorToWrite> tensors = tiny_model_tensors(model);
  const auto named = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const TensorToWrite& one) { return one.name == name; });
  };
  const auto head = named("lm_head.weight"), table = named("model.embed_tokens.weight");
  ASSERT_TRUE(head != tensors.end() && table != tensors.end());
  head->bytes = table->bytes;
  head->dtype = table->dtype;
  const auto write = [&] {
    write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
  };
  write();
  EXPECT_TRUE(ModelFiles(folder.path()).config.tie_word_embeddings);
  // Another last value is another head.
  head->bytes.back() = static_cast<char>(head->bytes.back() ^ 1);
  write();
  EXPECT_FALSE(ModelFiles(folder.path()).config.tie_word_embeddings);
  // A head of another shape cannot be used, and is not dropped.
  head->shape[0] -= 1;
  head->bytes.resize(head->bytes.size() - head->bytes.size() / (head->shape[0] + 1));
  write();
  EXPECT_TRUE(holds(refusal([&] { ModelFiles files(folder.path()); }), "lm_head.weight"));
  // One that stands alone is the table, too.
  head->shape = table->shape;
  head->bytes = table->bytes;
  tensors.erase(named("model.embed_tokens.weight"));
  write();
  EXPECT_TRUE(ModelFiles(folder.path()).config.tie_word_embeddings);
}

TEST(FolderNotes, NamesKeysThatNoFamilyKnows) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), TinyModel{});
  Json config = read_json_object(folder.path() / "config.json", 1 << 20).edit();
  config["attention_of_tomorrow"] = 2;
  config["attention_dropout"] = 0.1;
  write_file(folder.path() / "config.json", config.dump());
  const SettingNotes notes = ModelFolder(folder.path()).settings;
  EXPECT_EQ(names_of(notes.not_obeyed), Names{"attention_of_tomorrow"});
  EXPECT_EQ(names_of(notes.obeyed), (Names{"bos_token_id", "eos_token_id"}));
}

}  // namespace
}  // namespace coppice::testing
