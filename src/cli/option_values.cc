#include "cli/option_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/nearest.h"

namespace coppice::cli {

std::string in_small_letters(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

std::vector<std::string> items_in(const std::string& option, const std::string& list) {
  constexpr const char* blanks = " \t\n";
  std::vector<std::string> items;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    const std::string item = list.substr(from, comma - from);
    const auto first = item.find_first_not_of(blanks);
    if (first == item.npos) {
      throw_usage(cat("--", option, " ", quote(list), ": ",
                      comma == list.size() && from == 0 ? "it is empty" : "an item is empty",
                      "; give one or more, with a comma between two"));
    }
    items.push_back(item.substr(first, item.find_last_not_of(blanks) - first + 1));
    from = comma + 1;
  }
  return items;
}

void refuse_value(const std::string& where, const std::string& text,
                  const std::vector<std::string>& words) {
  const bool two = words.size() == 2;
  std::string names;
  for (const std::string& word : words) {
    names += (names.empty() ? "" : two ? " or " : ", ") + word;
  }
  // As other programs call them.
  constexpr std::pair<std::string_view, const char*> others[] = {
      {"gpu", "cuda"},      {"nvidia", "cuda"}, {"half", "f16"},
      {"float16", "f16"},   {"float32", "f32"}, {"float", "f32"},
      {"bfloat16", "bf16"}, {"q4_k_m", "q4_k"}, {"q4_k_s", "q4_k"}};
  const std::string small = in_small_letters(text);
  std::string meant;
  for (const auto& [other, ours] : others) {
    if (small == other && std::find(words.begin(), words.end(), ours) != words.end()) meant = ours;
  }
  if (meant.empty()) meant = nearest(small, words);
  throw_usage(cat(where, " ", quote(text), " is unknown; ",
                  meant.empty() ? "use " : cat("did you mean ", meant, "? Use "),
                  two ? "" : "one of ", names));
}

std::string choice_in(const std::string& where, const std::string& text,
                      const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) == words.end()) refuse_value(where, text, words);
  return text;
}

std::string shell_word(const std::string& text) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=:+@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace coppice::cli
