// Folders with every setting in every place, read as transformers reads them
// (tests/golden/make_folders.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"
#include "chat/model_template.h"
#include "coppice.h"
#include "models/config.h"
#include "models/settings/template_settings.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

const fs::path goldens = fs::path(COPPICE_SOURCE_DIR) / "tests/golden/folders";

const Json& variants() {
  static const JsonObject all = read_json_object(goldens / "variants.json", 16u << 20);
  return all->at("variants");
}

std::string title(const Json& variant) {
  return variant.at("folder").get<std::string>() + ", " + variant.at("name").get<std::string>();
}

/// A copy of the variant's folder, with its changes.
void lay(const Json& variant, const fs::path& dir) {
  fs::copy(goldens / variant.at("folder").get<std::string>(), dir,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const auto& [name, value] : variant.at("files").items()) {
    fs::create_directories((dir / name).parent_path());
    if (value.is_null()) {
      fs::remove(dir / name);
    } else {
      write_file(dir / name, value.get<std::string>());
    }
  }
}

TEST(FolderGolden, TextsAreTheSameTokens) {
  int texts = 0;
  for (const Json& variant : variants()) {
    const TemporaryFolder folder;
    lay(variant, folder.path());
    const auto tokenizer = Tokenizer::load(folder.path());
    // transformers gives Gemma's class a <pad> and a <mask> of new ids where there are none.
    if (!title(variant).ends_with("GemmaTokenizer")) {
      EXPECT_EQ(tokenizer->pieces(), variant.at("pieces").get<int>()) << title(variant);
    }
    for (const Json& text : variant.at("texts")) {
      const auto& written = text.at(0).get_ref<const std::string&>();
      EXPECT_EQ(tokenizer->encode(written), text.at(1).get<Ids>())
          << title(variant) << ": " << written;
      ++texts;
    }
    EXPECT_EQ(tokenizer->framed(tokenizer->encode("the sea")), variant.at("framed").get<Ids>())
        << title(variant);
  }
  EXPECT_GT(texts, 500);
}

TEST(FolderGolden, ConversationsAreTheSameTokens) {
  const chat::Value messages =
      chat::Value::list({chat::message("user", "the sea"), chat::message("assistant", "a sea")});
  int chats = 0;
  for (const Json& variant : variants()) {
    if (!variant.contains("chats")) continue;
    const TemporaryFolder folder;
    lay(variant, folder.path());
    const auto tokenizer = Tokenizer::load(folder.path());
    for (const auto& [name, ids] : variant.at("chats").items()) {
      const TemplateSettings found = read_template_settings(folder.path(), name);
      const chat::ModelTemplate reads(found.source, found.where, found.special_tokens);
      const chat::Text text = reads.render(messages, true);
      EXPECT_EQ(tokenizer->encode(text.view()), ids.get<Ids>()) << title(variant) << ", " << name;
      ++chats;
    }
  }
  EXPECT_GE(chats, 16);
}

TEST(FolderGolden, TextsEndAtTheSameTokens) {
  int written = 0;
  for (const Json& variant : variants()) {
    if (!variant.contains("greedy")) continue;
    const TemporaryFolder folder;
    lay(variant, folder.path());
    Ids ends;  // ids that are none end nothing
    for (const TokenId end : variant.at("ends").get<Ids>()) {
      if (end >= 0 && std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
    }
    EXPECT_EQ(read_config(folder.path()).eos_tokens, ends) << title(variant);
    EngineOptions options;
    options.target = folder.path();
    options.device = DeviceKind::cpu;
    options.threads = 1;
    Engine engine = Engine::load(options);
    GenerateOptions request;
    request.speculation = Plain{};
    request.max_new_tokens = 12;
    Ids greedy = variant.at("greedy").get<Ids>();
    const bool ended = std::find(ends.begin(), ends.end(), greedy.back()) != ends.end();
    if (ended) greedy.pop_back();  // an end token is not returned
    const auto result = engine.generate(std::string("the sea"), request);
    EXPECT_EQ(result.tokens, greedy) << title(variant);
    EXPECT_EQ(result.finish_reason == FinishReason::eos, ended) << title(variant);
    ++written;
  }
  EXPECT_GE(written, 18);
}

}  // namespace
}  // namespace coppice::testing
