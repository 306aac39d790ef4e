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
  if (name == "LlamaTokenizer") return TokenizerClass::llama_tokenizer;
  if (name == "GemmaTokenizer") return TokenizerClass::gemma_tokenizer;
  if (name == "Qwen2Tokenizer") return TokenizerClass::qwen2_tokenizer;
  return TokenizerClass::backend;
}

}  // namespace

TokenizerClass tokenizer_class_of(const SettingFile& config, const SettingFile& tokenizer_config) {
  const std::string type = text_in(config, "model_type");
  // Whatever class these name is not the one that fits their files.
  if (type == "mistral" || type == "phi3") return TokenizerClass::backend;
  if (type == "qwen2") return TokenizerClass::qwen2_tokenizer;
  std::string named = text_in(tokenizer_config, "tokenizer_class");
  if (named.empty()) named = text_in(config, "tokenizer_class");
  if (!named.empty()) return class_named(named);
  if (type == "qwen3") return TokenizerClass::qwen2_tokenizer;
  if (type == "gemma2" || type == "gemma3" || type == "gemma3_text")
    return TokenizerClass::gemma_tokenizer;
  return TokenizerClass::backend;
}

std::span<const std::pair<const char*, const char*>> default_tokens(TokenizerClass kind) {
  using Tokens = std::pair<const char*, const char*>;
  static constexpr Tokens llama_tokens[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
  static constexpr Tokens gemma_tokens[] = {{"bos_token", "<bos>"},
                                            {"eos_token", "<eos>"},
                                            {"unk_token", "<unk>"},
                                            {"pad_token", "<pad>"},
                                            {"mask_token", "<mask>"}};
  static constexpr Tokens qwen2_tokens[] = {{"eos_token", "<|endoftext|>"},
                                            {"unk_token", "<|endoftext|>"},
                                            {"pad_token", "<|endoftext|>"}};
  switch (kind) {
    case TokenizerClass::llama_tokenizer:
      return llama_tokens;
    case TokenizerClass::gemma_tokenizer:
      return gemma_tokens;
    case TokenizerClass::qwen2_tokenizer:
      return qwen2_tokens;
    case TokenizerClass::backend:
      break;
  }
  return {};
}

}  // namespace coppice
