#include "models/gguf/documents.h"

#include <utility>

#include "base/error.h"
#include "models/gguf/vocabulary.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::string_view template_key = "tokenizer.chat_template";

/// One template as a text; with named ones beside it all as a list.
Json chat_templates(const Json& metadata) {
  Json named = Json::array();
  const std::string begin = cat(template_key, ".");
  for (const auto& [key, value] : metadata.items()) {
    if (!key.starts_with(begin)) continue;
    named.push_back({{"name", key.substr(begin.size())}, {"template", value}});
  }
  const auto own = metadata.find(template_key);
  if (own == metadata.end()) return named.empty() ? Json() : named;
  if (named.empty()) return *own;
  named.push_back({{"name", "default"}, {"template", *own}});
  return named;
}

/// The added tokens of which sentencepiece or the metadata do not know all: a text is cut at its
/// user-defined tokens, and Phi's marks take white space beside them, those of Phi 4 on both sides,
/// those of Phi 3 behind them.
void add_decoder(const GgufVocabulary& vocabulary, bool is_phi, Json& config) {
  const bool is_phi4 = is_phi && vocabulary.model() == "gpt2" && vocabulary.pre() == "dbrx";
  const bool pieces = vocabulary.model() == "llama", is_phi3 = is_phi && pieces;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    const std::string& text = vocabulary.text(token);
    const bool is_control = vocabulary.kind(token) == PieceKind::control;
    const bool is_user_defined = pieces && vocabulary.kind(token) == PieceKind::user_defined &&
                                 text.find_first_of(" \t\r\n") == text.npos;
    const bool strips = is_phi4 ? is_control
                                : is_phi3 && (is_control || is_user_defined) && text != "<s>" &&
                                      text != "<|endoftext|>";
    if (!strips && !is_user_defined) continue;
    config["added_tokens_decoder"][std::to_string(token)] = {{"content", text},
                                                             {"lstrip", is_phi4},
                                                             {"rstrip", strips},
                                                             {"normalized", false},
                                                             {"special", is_control}};
  }
}

Json tokenizer_config(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"add_bos_token", vocabulary.adds("bos")},
                 {"add_eos_token", vocabulary.adds("eos")},
                 {"chat_template", chat_templates(file.metadata())}};
  constexpr std::pair<const char*, const char*> names[] = {{"bos", "bos_token"},
                                                           {"eos", "eos_token"},
                                                           {"unknown", "unk_token"},
                                                           {"padding", "pad_token"}};
  for (const auto& [name, key] : names) {
    const auto token = vocabulary.named(name);
    if (!token) continue;
    // Some files pad with an ordinary piece such as "!", which is no special token.
    const bool is_frame = std::string_view(name) == "bos" || std::string_view(name) == "eos";
    const bool is_normal = vocabulary.kind(*token) == PieceKind::normal;
    if (vocabulary.is_byte(*token) || (!is_frame && is_normal)) continue;
    config[key] = vocabulary.text(*token);
  }
  add_decoder(vocabulary, file.fields().text("general.architecture", "") == "phi3", config);
  return config;
}

/// Token ids, and what the file recommends for sampling.
Json generation_config(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  Json config = {{"eos_token_id", vocabulary.ends()}};
  if (const auto bos = vocabulary.named("bos")) config["bos_token_id"] = *bos;
  const Fields fields = file.fields();
  for (const auto& [key, name] : gguf_sampling_keys) {
    if (!fields.has(key)) continue;
    config[name] = *fields.find(key);
    config["do_sample"] = true;
  }
  return config;
}

}  // namespace

std::optional<JsonObject> gguf_document(const GgufFile& file, std::string_view name) {
  if (name == "config.json") return JsonObject(gguf_config(file));
  if (name == "tokenizer_config.json") return JsonObject(tokenizer_config(file));
  if (name == "generation_config.json") return JsonObject(generation_config(file));
  return std::nullopt;
}

}  // namespace coppice
