#include "models/gguf/pre_tokenizer_names.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/gguf/pre_tokenizers.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

/// The member, or null.
const Json& member(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : none;
}

/// The steps of a normalizer or pre-tokenizer, whatever sequences they stand in.
void append_steps(const Json& part, const char* list, std::vector<const Json*>& steps) {
  if (part.is_null()) return;
  if (member(part, "type") != "Sequence") return steps.push_back(&part);
  for (const Json& inner : member(part, list)) append_steps(inner, list, steps);
}

/// What a step does in words of PreTokenizing: the expression that cuts, or "bytes" and "words and
/// bytes" for the step that spells bytes; std::nullopt: something else.
std::optional<std::string> meaning(const Json& step) {
  const Json& type = member(step, "type");
  if (type == "Digits" && member(step, "individual_digits") == true) return R"(\p{N})";
  if (type == "Split") {
    const Json& pattern = member(member(step, "pattern"), "Regex");
    const bool plain = member(step, "behavior") == "Isolated" && member(step, "invert") != true;
    if (plain && pattern.is_string()) return pattern.get<std::string>();
  }
  if (type == "ByteLevel" && member(step, "add_prefix_space") == false) {
    return member(step, "use_regex") == false ? "bytes" : "words and bytes";
  }
  return std::nullopt;
}

/// Whether both cut text in the same way.
bool cuts_so(const std::vector<std::string>& steps, const PreTokenizing& rules) {
  std::vector<std::string> wanted;
  for (const std::string_view split : rules.splits) {
    if (!split.empty()) wanted.emplace_back(split);
  }
  wanted.emplace_back(rules.gpt2_words ? "words and bytes" : "bytes");
  return steps == wanted;
}

/// The merges by their pairs, with their ranks.
std::map<std::pair<std::string, std::string>, std::size_t> ranks_of(const Json& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (const Json& merge : merges) {
    std::pair<std::string, std::string> pair;
    if (merge.is_array()) {
      pair = {merge[0], merge[1]};
    } else {
      const auto text = merge.get<std::string>();
      const auto blank = text.find(' ');
      pair = {text.substr(0, blank), text.substr(blank + 1)};
    }
    ranks.emplace(std::move(pair), ranks.size());
  }
  return ranks;
}

/// Whether merges lead from its characters to every piece that is no added token: whether words
/// that are pieces are looked up first then makes no difference.
bool merges_reach_all(const Json& tokenizer) {
  const Json& model = member(tokenizer, "model");
  std::vector<std::string> added;
  for (const Json& token : member(tokenizer, "added_tokens")) {
    added.push_back(member(token, "content"));
  }
  std::sort(added.begin(), added.end());
  const auto ranks = ranks_of(member(model, "merges"));
  for (const auto& [piece, id] : member(model, "vocab").items()) {
    if (std::binary_search(added.begin(), added.end(), piece)) continue;
    std::vector<std::string> parts;
    for (const char c : piece) {
      const bool continues = (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
      if (!continues) parts.emplace_back();
      if (!parts.empty()) parts.back() += c;
    }
    while (parts.size() > 1) {
      auto best = ranks.end();
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks.find({parts[i], parts[i + 1]});
        if (found == ranks.end()) continue;
        if (best != ranks.end() && best->second <= found->second) continue;
        best = found;
        at = i;
      }
      if (best == ranks.end()) return false;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
  return true;
}

}  // namespace

std::string pre_tokenizer_name(const Json& tokenizer, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw_failure(cat(where, ": ", what,
                      "; load the model itself, with --target-weights in fewer "
                      "bits"));
  };
  const Json& model = member(tokenizer, "model");
  for (const char* part : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, part);
    if (!value.is_null() && value != "") refuse(cat("a GGUF file cannot say model.", part));
  }
  std::vector<const Json*> normalizers, cuts;
  append_steps(member(tokenizer, "normalizer"), "normalizers", normalizers);
  append_steps(member(tokenizer, "pre_tokenizer"), "pretokenizers", cuts);
  const bool nfc = normalizers.size() == 1 && member(*normalizers.front(), "type") == "NFC";
  std::vector<std::string> steps;
  for (const Json* cut : cuts) steps.push_back(meaning(*cut).value_or("unknown"));
  const bool looks_up = member(model, "ignore_merges") == true;
  const PreTokenizing* found = nullptr;
  for (const PreTokenizing& rules : all_pre_tokenizings()) {
    if (!cuts_so(steps, rules) || rules.nfc != nfc || (!nfc && !normalizers.empty())) continue;
    if (found == nullptr || rules.ignores_merges == looks_up) found = &rules;
    if (rules.ignores_merges == looks_up) break;
  }
  if (found == nullptr) {
    refuse(cat("its normalizer and pre_tokenizer are none of those that GGUF files name: ",
               pre_tokenizer_names()));
  }
  if (found->ignores_merges != looks_up && !merges_reach_all(tokenizer)) {
    refuse(cat("a GGUF file cannot say that model.ignore_merges is ", looks_up ? "true" : "false",
               " with the words of ", found->names.front()));
  }
  return std::string(found->names.front());
}

}  // namespace coppice
