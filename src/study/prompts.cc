#include "study/prompts.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "base/json_file.h"
#include "base/files.h"

namespace coppice::study {
namespace {

using Json = nlohmann::json;

constexpr std::uintmax_t largest_file = std::uintmax_t{256} << 20;
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::string_view blanks = " \t\r";

bool is_blank(std::string_view line) { return line.find_first_not_of(blanks) == line.npos; }

std::string text_in(const Json& value, const char* key, const std::string& where) {
  if (!value.is_string()) {
    throw_failure(cat(where, ": \"", key, "\" is ", shown(value), "; give a text"));
  }
  auto text = value.get<std::string>();
  if (text.empty()) throw_failure(cat(where, ": \"", key, "\" is empty; give a text or drop it"));
  return text;
}

std::vector<TokenId> tokens_in(const Json& value, const std::string& where) {
  const bool is_list = value.is_array() && !value.empty();
  std::vector<TokenId> tokens;
  for (const Json& token : is_list ? value : Json::array()) {
    if (!token.is_number_unsigned() ||
        token.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
      throw_failure(cat(where, ": \"tokens\" holds ", shown(token), "; give whole numbers from 0"));
    }
    tokens.push_back(token.get<TokenId>());
  }
  if (!is_list) throw_failure(cat(where, ": \"tokens\" must be a list of token ids like [1, 2]"));
  return tokens;
}

StudyPrompt prompt_in(std::string_view line, const std::string& where) {
  const JsonObject parsed = parse_json_object(line, where);
  const Json& object = *parsed;
  StudyPrompt prompt;
  for (const char* key : {"kind", "category"}) {
    if (!object.contains(key) || object[key].is_null()) continue;
    prompt.kind = text_in(object[key], key, where);
    break;
  }
  if (object.contains("turns")) {
    const Json& turns = object["turns"];
    if (!turns.is_array() || turns.empty()) {
      throw_failure(cat(where, ": \"turns\" is ", shown(turns), "; give a list of texts"));
    }
    prompt.text = text_in(turns[0], "turns", where);
    return prompt;
  }
  for (const char* key : {"prompt", "question", "text"}) {
    if (!object.contains(key)) continue;
    prompt.text = text_in(object[key], key, where);
    return prompt;
  }
  if (!object.contains("tokens")) {
    throw_failure(cat(where,
                      ": no prompt; an object needs \"prompt\", \"text\", \"turns\", "
                      "\"question\" or \"tokens\""));
  }
  prompt.tokens = tokens_in(object["tokens"], where);
  return prompt;
}

bool is_json(const std::filesystem::path& file, std::string_view text) {
  if (file.extension() == ".jsonl" || file.extension() == ".json") return true;
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && (text[first] == '{' || text[first] == '[');
}

}  // namespace

std::vector<StudyPrompt> read_prompts(const std::filesystem::path& file) {
  const std::string contents = read_file(file, "prompts", largest_file);
  std::string_view text = contents;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  const bool json = is_json(file, text);
  std::vector<StudyPrompt> prompts;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (is_blank(line)) continue;
    const std::string where = cat("prompts ", quote(file.string()), " line ", number);
    if (!is_valid_utf8(line)) {
      throw_failure(cat(where, ": not valid UTF-8; convert the file to UTF-8"));
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (json) {
      prompts.push_back(prompt_in(line, where));
    } else {
      prompts.push_back({"", std::string(line), {}, 0});
    }
    prompts.back().line = number;
  }
  if (prompts.empty()) {
    throw_failure(cat("prompts ", quote(file.string()), ": it holds none; give one a line"));
  }
  return prompts;
}

}  // namespace coppice::study
