// What a folder's files say about its tokenizer, beside tokenizer.json or tokenizer.model itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "models/settings/setting_file.h"

namespace coppice {

/// The classes of transformers whose rules differ here. `backend` keeps to the tokenizer's own
/// file; the others rebuild parts of it.
enum class TokenizerClass { backend, llama_tokenizer, gemma_tokenizer, qwen2_tokenizer };

/// Where a word mark is put before a text that does not begin with one.
enum class WordMark {
  as_file,  ///< as the tokenizer's file says
  always,   ///< at the beginning and behind every added token
  first,    ///< at the beginning only
  never
};

/// A token that a text may spell, whatever the vocabulary's rules would make of it.
struct AddedTokenSetting {
  std::string content;
  std::optional<TokenId> id;  ///< none: the vocabulary's, or the next one behind all
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = true;
  bool only_if_new = false;    ///< an earlier one of this text keeps its flags
  bool only_if_known = false;  ///< not added unless the vocabulary has a piece of this text
  std::string where;           ///< file and key, for messages
};

struct TokenizerSettings {
  TokenizerClass kind = TokenizerClass::backend;
  WordMark mark = WordMark::as_file;
  bool adds_bos = true;  ///< around a text; of a tokenizer.model
  bool adds_eos = false;
  /// Special tokens by name ("bos_token", ...), the class's own where the files name none.
  std::vector<std::pair<std::string, std::string>> named;
  std::vector<std::string> nulled;  ///< names that a file sets to null
  std::vector<AddedTokenSetting> added;
  SettingNotes notes;

  /// nullptr if no file and no class names it.
  const std::string* find(std::string_view name) const;
};

/// Reads config.json (model_type, tokenizer_class), tokenizer_config.json, and, as transformers 5
/// does only without added_tokens_decoder in the latter, special_tokens_map.json and
/// added_tokens.json. Files that are missing say nothing. Throws Error(failure) naming file and
/// key.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& dir);

}  // namespace coppice
