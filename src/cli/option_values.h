// Words of options as values: numbers, names, and lists with commas like "16,64,auto".
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace coppice::cli {

/// `text` in small letters: ASCII's, which names are made of.
std::string in_small_letters(std::string text);

/// The items of a list, without blanks around them. Throws Error(usage) where one is empty.
/// `option` is named in messages, here and below; it has no dashes.
std::vector<std::string> items_in(const std::string& option, const std::string& list);

/// All of `text` as a number from `least` to `most`. Throws Error(usage) for anything else;
/// `or_else` says what the caller takes beside numbers.
template <typename Number>
Number number_in(const std::string& option, const std::string& text,
                 Number least = std::numeric_limits<Number>::lowest(),
                 Number most = std::numeric_limits<Number>::max(), const char* or_else = "") {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stopped == end) {
    // Whether NaN or an infinity will do is for whoever takes the number to say.
    if (std::is_floating_point_v<Number> || (number >= least && number <= most)) return number;
  }
  throw_usage(cat("--", option, " ", quote(text), ": use a ",
                  std::is_floating_point_v<Number> ? std::string("number")
                                                   : cat("whole number from ", least, " to ", most),
                  or_else));
}

/// An amount of memory in bytes: "24GiB", "24G" (the same), "24GB" (of 1e9), "1.5G", "800M". Throws
/// Error(usage) for anything else, and for less than a byte.
std::uint64_t bytes_in(const std::string& option, const std::string& text);

/// Layers that stay on a GPU: a number, "auto" (-1), or "all", which is more than any model has.
std::int32_t layers_in(const std::string& option, const std::string& text);

/// Devices that share a model: a number, or "auto" (0).
std::int32_t ranks_in(const std::string& option, const std::string& text);

/// A list of whole numbers from `least`.
template <typename Number>
std::vector<Number> numbers_in(const std::string& option, const std::string& list, Number least) {
  std::vector<Number> numbers;
  for (const std::string& item : items_in(option, list)) {
    numbers.push_back(number_in<Number>(option, item, least));
  }
  return numbers;
}

/// Throws Error(usage): `text` is none of the `words` that `where` takes, one of which was probably
/// meant.
[[noreturn]] void refuse_value(const std::string& where, const std::string& text,
                               const std::vector<std::string>& words);
/// `text`, which is one of `words`, or refuse_value().
std::string choice_in(const std::string& where, const std::string& text,
                      const std::vector<std::string>& words);

/// The one of `all` that name_of() calls so, in whatever letters: files write Q4_K. Throws
/// Error(usage), which lists their names.
template <typename Values>
auto named(const std::string& option, const std::string& text, const Values& all) {
  std::vector<std::string> names;
  for (const auto value : all) {
    if (in_small_letters(text) == name_of(value)) return value;
    names.emplace_back(name_of(value));
  }
  refuse_value(cat("--", option), text, names);
}

/// What `parse` makes of each item of a list whose repetitions mean nothing: equal ones once.
template <typename Parse>
auto choices_in(const std::string& option, const std::string& list, Parse parse) {
  std::vector<decltype(parse(std::string()))> choices;
  for (const std::string& item : items_in(option, list)) {
    const auto choice = parse(item);
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) {
      choices.push_back(choice);
    }
  }
  return choices;
}

/// The names of `all` as --help shows them for a value: "auto|cpu|cuda".
template <typename Values>
std::string any_of(const Values& all) {
  std::string names;
  for (const auto value : all) names += (names.empty() ? "" : "|") + std::string(name_of(value));
  return names;
}

/// A word as a shell takes it, in quotes if it needs them.
std::string shell_word(const std::string& text);

}  // namespace coppice::cli
