#include "models/settings/tokenizer_class.h"

#include <optional>
#include <string>

namespace coppice {
namespace {

std::string text_in(const SettingFile& file, const char* key) {
  const nlohmann::json* const value = file.find(key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

TokenizerClass class_named(std::string_view name) {
  constexpr std::string_view fast = "Fast";
  if (name.ends_with(fast)) name.remove_suffix(fast.size());
  if (name == "LlamaTokenizer") return TokenizerClass::llama;
  if (name == "GemmaTokenizer") return TokenizerClass::gemma;
  if (name == "Qwen2Tokenizer") return TokenizerClass::qwen2;
  return TokenizerClass::backend;
}

}  // namespace

TokenizerClass tokenizer_class_of(const SettingFile& config, const SettingFile& tokenizer_config) {
  const std::string type = text_in(config, "model_type");
  // Whatever class these name is not the one that fits their files.
  if (type == "mistral" || type == "phi3") return TokenizerClass::backend;
  if (type == "qwen2") return TokenizerClass::qwen2;
  std::string named = text_in(tokenizer_config, "tokenizer_class");
  if (named.empty()) named = text_in(config, "tokenizer_class");
  if (!named.empty()) return class_named(named);
  if (type == "qwen3") return TokenizerClass::qwen2;
  if (type == "gemma2" || type == "gemma3" || type == "gemma3_text") return TokenizerClass::gemma;
  return TokenizerClass::backend;
}

std::span<const std::pair<const char*, const char*>> default_tokens(TokenizerClass kind) {
  using Tokens = std::pair<const char*, const char*>;
  static constexpr Tokens llama[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
  static constexpr Tokens gemma[] = {{"bos_token", "<bos>"},
                                     {"eos_token", "<eos>"},
                                     {"unk_token", "<unk>"},
                                     {"pad_token", "<pad>"},
                                     {"mask_token", "<mask>"}};
  static constexpr Tokens qwen2[] = {{"eos_token", "<|endoftext|>"},
                                     {"unk_token", "<|endoftext|>"},
                                     {"pad_token", "<|endoftext|>"}};
  switch (kind) {
    case TokenizerClass::llama:
      return llama;
    case TokenizerClass::gemma:
      return gemma;
    case TokenizerClass::qwen2:
      return qwen2;
    case TokenizerClass::backend:
      break;
  }
  return {};
}

}  // namespace coppice
