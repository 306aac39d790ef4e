#include "models/settings/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "models/settings/tokenizer_class.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t most_tokens = 1u << 20;
/// Most tokens with names of their own, which are few.
constexpr std::size_t most_named = 1024;

constexpr const char* special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

bool is_token_name(std::string_view key) {
  constexpr std::string_view end = "_token";
  return key.size() > end.size() && key.ends_with(end);
}

/// Reads the files one after another into the settings.
class Reader {
 public:
  explicit Reader(const fs::path& dir)
      : config_(dir, "tokenizer_config.json"),
        map_(dir, "special_tokens_map.json"),
        added_(dir, "added_tokens.json"),
        beside_model_(!is_there(dir / "tokenizer.json")) {
    const SettingFile model(dir, "config.json");
    out_.kind = tokenizer_class_of(model, config_);
  }

  TokenizerSettings read() {
    read_frame();
    read_mark();
    for (const std::string& key : config_.keys()) read_named(config_, key);
    const Json* const extra = config_.find("extra_special_tokens");
    const bool has_extra = extra != nullptr && !extra->empty();
    read_extra(config_, has_extra ? "extra_special_tokens" : "additional_special_tokens");
    if (has_extra && config_.has("additional_special_tokens") && !all_known()) {
      ignore(config_, "additional_special_tokens");
    }
    if (const Json* decoder = config_.find("added_tokens_decoder"); decoder != nullptr) {
      read_decoder(*decoder);
      ignore(map_, "*");
      ignore(added_, "*");
    } else {
      read_map();
      read_added();
    }
    add_defaults();
    collect();
    note_rest();
    return std::move(out_);
  }

 private:
  void obey(const SettingFile& file, const std::string& key, const std::string& value) {
    out_.notes.obeyed.push_back({file.name(), key, value});
  }
  /// "*": all of a file's keys.
  void ignore(const SettingFile& file, const std::string& key) {
    if (key != "*") {
      out_.notes.not_obeyed.push_back({file.name(), key, ""});
    } else if (file.is_there() && !file.object().empty()) {
      for (const auto& [name, value] : file.object().items()) {
        // What the files repeat of each other is no loss.
        const Json* same = config_.find(name);
        if (same != nullptr && *same == value) continue;
        if (&file == &added_ && decoder_has(name)) continue;
        if (is_special_name(name) && text_of(value) == named_text(name)) continue;
        if (name.ends_with("_special_tokens") && all_in_decoder(value)) continue;
        ignore(file, name);
      }
    }
  }

  void read_frame() {
    const auto read = [&](const char* key, bool& adds) {
      if (!config_.has(key)) return;
      const bool given = config_.flag(key).value_or(false);
      if (!beside_model_) return;  // its post-processor says it, in transformers too
      adds = given;
      obey(config_, key, adds ? "true" : "false");
    };
    read("add_bos_token", out_.adds_bos);
    read("add_eos_token", out_.adds_eos);
  }

  /// The class of Llama puts a mark by two keys whatever the file says; the plain one reads
  /// `legacy` of a tokenizer.model.
  void read_mark() {
    const Json* const given = config_.find("legacy");
    const std::optional<bool> legacy = config_.flag("legacy");
    const std::optional<bool> prefix = config_.flag("add_prefix_space");
    const auto note = [&](const char* key, bool obeyed) {
      const Json* const value = config_.find(key);
      if (value == nullptr || value->is_null()) return;
      if (obeyed) obey(config_, key, shown(*value));
    };
    switch (out_.kind) {
      case TokenizerClass::llama_tokenizer:
        out_.mark = !prefix.value_or(true)   ? WordMark::never
                    : legacy.value_or(false) ? WordMark::always
                                             : WordMark::first;
        note("legacy", true);
        note("add_prefix_space", true);
        break;
      case TokenizerClass::gemma_tokenizer:
        out_.mark = WordMark::never;
        break;
      case TokenizerClass::backend:
        if (!beside_model_) break;
        if (given != nullptr && !legacy.value_or(false)) out_.mark = WordMark::first;
        note("legacy", true);
        break;
      case TokenizerClass::qwen2_tokenizer:
        break;
    }
  }

  static bool is_special_name(std::string_view key) {
    return std::find(std::begin(special_names), std::end(special_names), key) !=
           std::end(special_names);
  }

  /// A token as its text, or as an object that holds it; empty for anything else.
  static std::string text_of(const Json& value) {
    if (value.is_string()) return value;
    if (!value.is_object()) return "";
    const auto content = value.find("content");
    return content != value.end() && content->is_string() ? content->get<std::string>() : "";
  }

  std::string named_text(std::string_view name) const {
    const std::string* const text = out_.find(name);
    return text == nullptr ? "" : *text;
  }

  bool decoder_has(std::string_view content) const { return decoder_texts_.contains(content); }
  bool all_in_decoder(const Json& list) const {
    return list.is_array() && std::all_of(list.begin(), list.end(), [&](const Json& token) {
             return decoder_has(text_of(token));
           });
  }

  /// Flags of a token that is an object, over those of a special one.
  AddedTokenSetting token_of(const SettingFile& file, const std::string& key, const Json& value,
                             bool special) const {
    AddedTokenSetting token;
    token.where = cat(file.where(), ": ", key);
    token.content = text_of(value);
    if (!value.is_string() &&
        (!value.is_object() || !value.contains("content") || !value["content"].is_string())) {
      throw_failure(cat(token.where, ": ", shown(value),
                        " is no token; give its text, or an object with its content"));
    }
    if (!value.is_object()) return token;
    const auto flag = [&](const char* name, bool otherwise) {
      const auto found = value.find(name);
      if (found == value.end() || found->is_null()) return otherwise;
      if (!found->is_boolean()) {
        throw_failure(cat(token.where, ": ", name, " ", shown(*found),
                          " is neither true nor false; correct it"));
      }
      return found->get<bool>();
    };
    token.special = flag("special", special);
    token.normalized = flag("normalized", !token.special);
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    return token;
  }

  /// "bos_token" and the like, and names of a model's own that end so.
  void read_named(const SettingFile& file, const std::string& key) {
    const Json& value = *file.find(key);
    if (!is_token_name(key) || (!is_special_name(key) && !value.is_string())) return;
    if (names_.size() >= most_named) file.refuse(key, "one of at most 1024 named tokens");
    std::erase_if(out_.named, [&](const auto& one) { return one.first == key; });
    std::erase_if(names_, [&](const auto& one) { return one.first == key; });
    std::erase(out_.nulled, key);
    if (value.is_null()) {
      out_.nulled.push_back(key);
      return;
    }
    AddedTokenSetting token = token_of(file, key, value, true);
    token.special = true;
    token.only_if_new = true;
    out_.named.emplace_back(key, token.content);
    obey(file, key, quote(token.content));
    names_.emplace_back(key, std::move(token));
  }

  /// A list of tokens, or an object of names and tokens.
  void read_extra(const SettingFile& file, const char* key) {
    const Json* const list = file.find(key);
    if (list == nullptr || list->is_null()) return;
    if (list->is_object()) {
      if (list->size() > most_named) file.refuse(key, "an object of at most 1024 tokens");
      for (const std::string& name : file.keys(key)) {
        AddedTokenSetting token = token_of(file, key, (*list)[name], true);
        token.only_if_new = true;
        out_.named.emplace_back(name, token.content);
        names_.emplace_back(name, std::move(token));
      }
    } else if (list->is_array() && list->size() <= most_tokens) {
      for (const Json& value : *list) {
        AddedTokenSetting token = token_of(file, key, value, true);
        token.only_if_new = true;
        extra_texts_.insert(token.content);
        extra_.push_back(std::move(token));
      }
    } else {
      file.refuse(key, "a list of tokens");
    }
    if (!list->empty())
      obey(file, key, cat(list->size(), list->size() == 1 ? " token" : " tokens"));
  }

  /// Whether the tokens of additional_special_tokens are all among the extra ones.
  bool all_known() const {
    const Json& list = *config_.find("additional_special_tokens");
    return list.is_null() ||
           (list.is_array() && std::all_of(list.begin(), list.end(), [&](const Json& token) {
              return in_extra(text_of(token));
            }));
  }

  void read_decoder(const Json& decoder) {
    const char* const key = "added_tokens_decoder";
    if (!decoder.is_object() || decoder.size() > most_tokens) {
      config_.refuse(key, "an object of tokens by id");
    }
    for (const auto& [name, value] : decoder.items()) {
      AddedTokenSetting token = token_of(config_, cat(key, ".", name), value, false);
      TokenId id = -1;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
      if (error != std::errc() || end != name.data() + name.size() || id < 0) {
        throw_failure(
            cat(config_.where(), ": ", key, ": ", quote(name), " is no token id; correct it"));
      }
      token.id = id;
      decoder_texts_.insert(token.content);
      by_id_.push_back(std::move(token));
    }
    if (!by_id_.empty()) obey(config_, key, cat(by_id_.size(), " tokens"));
  }

  void read_map() {
    for (const std::string& key : map_.keys()) read_named(map_, key);
    const bool extra = !extra_.empty();
    read_extra(map_, "extra_special_tokens");
    const Json* const more = map_.find("additional_special_tokens");
    if (more == nullptr || more->is_null() || more->empty()) return;
    // Beside a tokenizer.model the pieces that it calls control take this key's place.
    if (beside_model_ || extra) {
      if (more->is_array() && std::all_of(more->begin(), more->end(), [&](const Json& token) {
            return in_extra(text_of(token));
          })) {
        return;
      }
      ignore(map_, "additional_special_tokens");
    } else if (extra_.empty()) {
      read_extra(map_, "additional_special_tokens");
    }
  }

  bool in_extra(std::string_view content) const { return extra_texts_.contains(content); }

  void read_added() {
    if (added_.object().size() > most_tokens) {
      throw_failure(cat(added_.where(), ": ", added_.object().size(), " tokens are more than ",
                        most_tokens, "; fetch the file again"));
    }
    std::set<std::string, std::less<>> named;
    for (const auto& [name, token] : names_) {
      if (is_special_name(name)) named.insert(token.content);
    }
    for (const auto& [content, value] : added_.object().items()) {
      const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= INT32_MAX;
      if (!fits) added_.refuse(content, "a token id");
      AddedTokenSetting token;
      token.where = cat(added_.where(), ": ", quote(content));
      token.content = content;
      token.id = static_cast<TokenId>(value.get<std::uint64_t>());
      token.only_if_new = true;  // a tokenizer.json that knows it keeps its flags
      token.special = named.contains(content) || in_extra(content);
      token.normalized = !token.special;
      by_id_.push_back(std::move(token));
    }
    if (!by_id_.empty()) obey(added_, "added_tokens", cat(by_id_.size(), " tokens"));
  }

  void add_defaults() {
    for (const auto& [name, content] : default_tokens(out_.kind)) {
      if (out_.find(name) != nullptr ||
          std::find(out_.nulled.begin(), out_.nulled.end(), name) != out_.nulled.end()) {
        continue;
      }
      AddedTokenSetting token;
      token.content = content;
      token.where = cat(config_.where(), ": ", name);
      token.only_if_new = token.only_if_known = true;
      out_.named.emplace_back(name, token.content);
      names_.emplace_back(name, std::move(token));
    }
  }

  /// By id, then named ones, then the rest: the order in which ids are counted on.
  void collect() {
    std::stable_sort(by_id_.begin(), by_id_.end(),
                     [](const auto& one, const auto& other) { return one.id < other.id; });
    out_.added = std::move(by_id_);
    for (const char* name : special_names) {
      for (auto& [key, token] : names_) {
        if (key == name) out_.added.push_back(std::move(token));
      }
    }
    for (auto& [key, token] : names_) {
      if (!is_special_name(key)) out_.added.push_back(std::move(token));
    }
    for (AddedTokenSetting& token : extra_) out_.added.push_back(std::move(token));
  }

  void note_rest();

  const SettingFile config_, map_, added_;
  const bool beside_model_;
  TokenizerSettings out_;
  std::vector<AddedTokenSetting> by_id_, extra_;
  std::set<std::string, std::less<>> decoder_texts_, extra_texts_;
  std::vector<std::pair<std::string, AddedTokenSetting>> names_;
};

/// Names keys of tokenizer_config.json that would change tokens or text and are not looked at.
void Reader::note_rest() {
  static const std::set<std::string, std::less<>> known = {
      // read here, or with the chat template
      "add_bos_token", "add_eos_token", "legacy", "add_prefix_space", "added_tokens_decoder",
      "extra_special_tokens", "additional_special_tokens", "chat_template", "tokenizer_class",
      // descriptive, or for padding, training and other programs
      "auto_map", "backend", "init_inputs", "is_local", "local_files_only", "max_length", "max_len",
      "model_input_names", "model_max_length", "name_or_path", "pad_to_multiple_of",
      "pad_token_type_id", "padding_side", "processor_class", "response_schema",
      "response_template", "special_tokens_map_file", "stride", "tokenizer_file", "truncation_side",
      "truncation_strategy", "use_fast", "vocab_file", "verbose", "sp_model_kwargs",
      "spaces_between_special_tokens", "use_default_system_prompt", "errors",
      "clean_up_tokenization_spaces", "device_map", "max_model_input_sizes", "tokenizer_type",
      "merges_file", "image_size", "fast_tokenizer_files"};
  for (const auto& [key, value] : config_.object().items()) {
    const bool off = value.is_null() || value == false;
    if (off || known.contains(key) || key.starts_with("_") || is_token_name(key)) continue;
    ignore(config_, key);
  }
}

}  // namespace

const std::string* TokenizerSettings::find(std::string_view name) const {
  for (const auto& [key, text] : named) {
    if (key == name) return &text;
  }
  return nullptr;
}

TokenizerSettings read_tokenizer_settings(const fs::path& dir) { return Reader(dir).read(); }

}  // namespace coppice
