#include "cli/option_values.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/nearest.h"

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

std::uint64_t bytes_in(const std::string& option, const std::string& text) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string unit = in_small_letters(std::string(stopped, end));
  constexpr std::string_view prefixes = "kmgt";
  double scale = unit.empty() || unit == "b" ? 1.0 : 0.0;
  if (const auto power = prefixes.find(unit.empty() ? '?' : unit[0]); power != prefixes.npos) {
    const double exponent = static_cast<double>(power) + 1.0;
    const std::string_view rest = std::string_view(unit).substr(1);
    if (rest.empty() || rest == "ib") scale = std::pow(1024.0, exponent);
    if (rest == "b") scale = std::pow(1000.0, exponent);
  }
  constexpr double most = 1e18;
  constexpr double least = 1 << 20;
  if (error == std::errc() && number * scale >= 1.0 && number * scale < least) {
    throw_usage(cat("--", option, " ", quote(text), ": less than 1 MiB; ",
                    unit.empty() ? cat("it is in bytes; give a unit, such as ", text, "GiB")
                                 : std::string("give more")));
  }
  if (error == std::errc() && number * scale >= least && number * scale <= most) {
    return static_cast<std::uint64_t>(number * scale);
  }
  throw_usage(cat("--", option, " ", quote(text),
                  ": use an amount of memory, such as 24GiB, 24GB or ", "800MiB"));
}

std::int32_t layers_in(const std::string& option, const std::string& text) {
  constexpr std::int32_t all = std::numeric_limits<std::int32_t>::max();
  const std::string small = in_small_letters(text);
  if (small == "auto") return -1;
  if (small == "all") return all;
  return number_in<std::int32_t>(option, text, 0, all, ", auto or all");
}

std::int32_t ranks_in(const std::string& option, const std::string& text) {
  if (in_small_letters(text) == "auto") return 0;
  return number_in<std::int32_t>(option, text, 1, std::numeric_limits<std::int32_t>::max(),
                                 " or auto");
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
