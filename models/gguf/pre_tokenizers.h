// How text is cut into words by what tokenizer.ggml.pre names.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

struct PreTokenizing {
  std::array<std::string_view, 3> names;
  std::array<std::string_view, 3> splits;  ///< regular expressions, each cutting what is left
  bool gpt2_words = false;                 ///< and then GPT-2's own
  bool nfc = false;
  bool ignores_merges = false;  ///< a word that is a piece becomes it, whatever merges lead to
  bool adds_bos = false;        ///< where the metadata do not say
};

/// nullptr if coppice does not know the name.
const PreTokenizing* pre_tokenizing(std::string_view name);
std::span<const PreTokenizing> all_pre_tokenizings();
std::string pre_tokenizer_names();  ///< of all that it knows, for messages
/// The parts "normalizer" and "pre_tokenizer" of a tokenizer.json.
nlohmann::json normalizer_of(const PreTokenizing& rules);
nlohmann::json pre_tokenizer_of(const PreTokenizing& rules);

}  // namespace coppice
