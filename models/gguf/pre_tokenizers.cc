#include "models/gguf/pre_tokenizers.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

// As the tokenizer.json files have them that the names stand for.
constexpr std::string_view llama3_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view gpt4o_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view deepseek3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr PreTokenizing known_rules[] = {
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .splits = {llama3_words},
     .ignores_merges = true,
     .adds_bos = true},
    // Llama 3's words in files that put no BOS: SmolLM3, and Phi 4 after GPT-4.
    {.names = {"smaug-bpe", "dbrx"}, .splits = {llama3_words}, .ignores_merges = true},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .splits = {qwen2_words}, .nfc = true},
    {.names = {"gpt-2"}, .splits = {}, .gpt2_words = true},
    {.names = {"smollm"}, .splits = {R"(\p{N})"}, .gpt2_words = true},
    {.names = {"tekken"}, .splits = {tekken_words}, .ignores_merges = true, .adds_bos = true},
    {.names = {"gpt-4o"}, .splits = {gpt4o_words}},
    {.names = {"deepseek-v3"},
     .splits = {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
                deepseek3_words}},
};

}  // namespace

const PreTokenizing* pre_tokenizing(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(known_rules), std::end(known_rules), [&](const PreTokenizing& rules) {
        return !name.empty() &&
               std::find(rules.names.begin(), rules.names.end(), name) != rules.names.end();
      });
  return found == std::end(known_rules) ? nullptr : found;
}

std::span<const PreTokenizing> all_pre_tokenizings() { return known_rules; }

std::string pre_tokenizer_names() {
  std::string all;
  for (const PreTokenizing& rules : known_rules) {
    for (const std::string_view name : rules.names) {
      if (!name.empty()) all += cat(all.empty() ? "" : ", ", name);
    }
  }
  return all;
}

Json normalizer_of(const PreTokenizing& rules) {
  return rules.nfc ? Json{{"type", "NFC"}} : Json();
}

Json pre_tokenizer_of(const PreTokenizing& rules) {
  Json stages = Json::array();
  for (const std::string_view split : rules.splits) {
    if (split.empty()) continue;
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", split}}}, {"behavior", "Isolated"}});
  }
  stages.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", rules.gpt2_words}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
}

}  // namespace coppice
