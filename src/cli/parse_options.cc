// Words of a command line as values of options; --help.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/remedy.h"
#include "cli/constraint_options.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/other_names.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

// What options of this type take.
std::string kind_of(const po::option_description& option) {
  const auto* typed = dynamic_cast<const po::typed_value_base*>(option.semantic().get());
  if (typed == nullptr) return "another value";
  return typed->value_type() == typeid(double) ? "number" : "whole number";
}

// Ranges of numbers, as the checks behind the options have them.
std::string range_of(const std::string& option) {
  constexpr std::pair<const char*, const char*> ranges[] = {
      {"temperature", "from 0 (always the most probable token) to 100"},
      {"draft-temperature", "from 0.001 to 100"},
      {"top-p", "above 0, up to 1"},
      {"min-p", "from 0 to 1"},
      {"repetition-penalty", "above 0 (1 is off), up to 100"},
      {"presence-penalty", "from -2 to 2 (0 is off)"},
      {"frequency-penalty", "from -2 to 2 (0 is off)"},
      {"threshold", "from 0 (automatic) to 1"},
      {"gpu-memory-fraction", "above 0, up to 1"},
      {"threads", "from 0 (all) to 1024"}};
  for (const auto& [name, range] : ranges) {
    if (option == name) return cat(" ", range);
  }
  return "";
}

/// The bound that a number, well written, is beyond; "" for other words.
std::string limit_of(const po::option_description& option, const std::string& typed) {
  char* end = nullptr;
  const double number = std::strtod(typed.c_str(), &end);
  if (typed.empty() || *end != '\0' || std::isnan(number)) return "";
  const bool below = number < 0.0;
  if (kind_of(option) == "number") {
    return std::isinf(number) ? cat(" of at ", below ? "least -" : "most ", "1.7e308") : "";
  }
  if (typed.find_first_not_of("0123456789", below ? 1 : 0) != typed.npos) return "";
  return below ? cat(" of at least ", std::numeric_limits<std::int32_t>::min())
               : cat(" of at most ", std::numeric_limits<std::int32_t>::max());
}

[[noreturn]] void throw_malformed(const po::invalid_option_value& error,
                                  const po::options_description& all) {
  const std::string name = error.get_option_name().substr(2);
  std::string typed = error.what();  // the argument ('abc') for option '--name' is invalid
  const auto from = typed.find("('"), to = typed.rfind("') for option");
  typed = from < to && to != typed.npos ? typed.substr(from + 2, to - from - 2) : "";
  const po::option_description* option = all.find_nothrow(name, false);
  std::string range = range_of(name);
  if (range.empty() && option != nullptr) range = limit_of(*option, typed);
  throw_usage(cat("--", name, " ", quote(typed), ": use a ",
                  option != nullptr ? kind_of(*option) : "number", range, "; see --help"));
}

/// What parse() is to leave --help's parts in, instead of printing them.
CommandHelp* asked_help = nullptr;

// Every word has a place, so that one that belongs to no option can be named.
constexpr const char* stray = "word without an option";

/// The option of this long name; null if there is none.
const po::option_description* find(const po::options_description& all, const std::string& name) {
  return name.empty() ? nullptr : all.find_nothrow(name, false);
}

[[noreturn]] void refuse_option(std::string typed, const po::options_description& all) {
  typed = typed.substr(0, typed.find('='));
  const Translation ours = translated(typed);
  if (find(all, std::string(ours.option)) != nullptr) {
    throw_usage(cat("option ", quote(typed), " is unknown; coppice calls it --", ours.option,
                    ours.remark, "; see --help"));
  }
  if (ours.option.empty() && !ours.remark.empty()) {
    throw_usage(cat("option ", quote(typed), " is unknown: ", ours.remark));
  }
  if (const std::string_view meant = aliased(typed); !meant.empty()) {
    throw_usage(cat("option ", quote(typed), " is unknown: it means --", meant,
                    ", which this command does not have; see --help"));
  }
  if (typed.starts_with("--") && find(constraint_options(), typed.substr(2)) != nullptr) {
    throw_usage(cat("option ", quote(typed),
                    " is unknown: this command's texts take no constraint; those of generate, "
                    "chat, tree and study do"));
  }
  std::vector<std::string> known;
  for (const auto& option : all.options()) {
    if (option->long_name() == stray) continue;
    known.push_back("--" + option->long_name());
    for (const std::string& alias : aliases_of(option->long_name())) {
      if (alias.starts_with("--")) known.push_back(alias);
    }
  }
  const bool one_dash = !typed.starts_with("--") && typed.size() > 3;
  // Anything is near to a letter or two.
  const bool short_name = typed.find_first_not_of('-') + 2 >= typed.size();
  const std::string meant = short_name ? "" : nearest((one_dash ? "-" : "") + typed, known);
  const std::string unknown = cat("option ", quote(typed), " is unknown");
  throw_usage(with_remedy(meant.empty() ? unknown : cat(unknown, "; did you mean ", meant, "?"),
                          "see --help"));
}

/// `arguments` with aliases spelt out. Boost would take -prompt for -p with the value rompt, so
/// that words with one dash are looked at here.
std::vector<std::string> spelt_out(const std::vector<std::string>& arguments,
                                   const po::options_description& all) {
  std::vector<std::string> words;
  bool escaped = false;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    if (*word == "--") {
      words.insert(words.end(), word, arguments.end());
      break;
    }
    const auto equals = std::min(word->find('='), word->size());
    const std::string head = word->substr(0, equals);
    std::string name(aliased(head));
    if (find(all, name) == nullptr) name.clear();
    const bool is_alias = !name.empty();
    escaped = escaped || (is_alias && escapes(head));
    const bool one_dash = head.size() > 1 && head[0] == '-' && head[1] != '-';
    const bool is_number = one_dash && (head[1] == '.' || (head[1] >= '0' && head[1] <= '9'));
    if (one_dash && !is_alias && head != "-h" && !is_number) refuse_option(head, all);
    if (!is_alias && head.starts_with("--")) name = head.substr(2);
    words.push_back(is_alias ? cat("--", name, word->substr(equals)) : *word);
    const po::option_description* option = find(all, name);
    const bool takes_next = option != nullptr && option->semantic()->max_tokens() > 0 &&
                            equals == word->size() && word + 1 != arguments.end();
    if (takes_next) words.push_back(*++word);
  }
  const auto given = [&](const char* option) {
    return std::find(words.begin(), words.end(), option) != words.end();
  };
  if (escaped && find(all, "escape") != nullptr && !given("--escape") && !given("--no-escape")) {
    words.insert(words.begin(), "--escape");
  }
  return words;
}

/// The aliases of options that a command has, as lines of its --help.
std::string alias_lines(const po::options_description& all) {
  constexpr std::size_t columns = 80;
  std::string text, line;
  for (const auto& option : all.options()) {
    std::string words;
    for (const std::string& alias : aliases_of(option->long_name())) {
      words += cat(words.empty() ? "" : ", ", alias);
    }
    if (words.empty()) continue;
    words += cat(" for --", option->long_name());
    if (line.size() + 2 + words.size() > columns) {
      text += line + ";\n";
      line.clear();
    }
    line += cat(line.empty() ? (text.empty() ? "Also: " : "      ") : "; ", words);
  }
  return line.empty() ? "" : cat("\n", text, line, "\n");
}

/// An empty value is a variable that is not set, as a rule. What it was meant to say, such as who
/// may ask a server, must not be passed over. A system message may say nothing; who reads the
/// prompt says more of an empty one.
void refuse_empty(const po::variables_map& values, const po::options_description& options) {
  for (const auto& option : options.options()) {
    const std::string& name = option->long_name();
    const bool takes_none = option->semantic()->max_tokens() == 0;
    if (takes_none || name == "prompt" || name == "system" || values.count(name) == 0) continue;
    const auto* const text = boost::any_cast<std::string>(&values[name].value());
    if (text == nullptr || !text->empty()) continue;
    throw_usage(cat("--", name, " '': it is empty; give it a value, or leave it out"));
  }
}

}  // namespace

bool parse(const std::vector<std::string>& arguments, const po::options_description& options,
           const std::string& usage, po::variables_map& values,
           const po::options_description& hidden,
           const po::positional_options_description& positional) {
  po::options_description all;
  all.add(options).add(hidden);
  all.add_options()("help,h", "print this and exit")(stray, po::value<std::vector<std::string>>());
  po::positional_options_description places = positional;
  const bool takes_all = positional.max_total_count() == std::numeric_limits<unsigned>::max();
  if (!takes_all) places.add(stray, -1);
  using namespace po::command_line_style;
  try {
    po::store(po::command_line_parser(spelt_out(arguments, all))
                  .options(all)
                  .positional(places)
                  .style(unix_style & ~allow_guessing)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::invalid_option_value& error) {
    throw_malformed(error, all);
  } catch (const po::unknown_option& error) {
    refuse_option(error.get_option_name(), all);
  } catch (const po::error& error) {
    throw_usage(with_remedy(error.what(), "see --help"));
  }
  if (values.count("help") == 0 && values.count(stray) != 0) {
    const std::string word = values[stray].as<std::vector<std::string>>().front();
    std::error_code ignored;
    const bool names_model =
        word.ends_with(".gguf") || std::filesystem::is_directory(word, ignored);
    if (names_model && find(all, "target") != nullptr) {
      throw_usage(cat(quote(word), " belongs to no option; a model is named by --target ",
                      shell_word(word), " (see --help)"));
    }
    throw_usage(cat(quote(word), " belongs to no option; ",
                    all.find_nothrow("prompt", false) != nullptr
                        ? "give a text to continue in quotes, as --prompt \"TEXT\", and other "
                          "values as --option VALUE"
                        : "give values as --option VALUE",
                    " (see --help)"));
  }
  if (values.count("help") == 0) {
    refuse_empty(values, options);
    return true;
  }
  if (asked_help != nullptr) {
    asked_help->usage = usage;
    asked_help->options.add(options);
    return false;
  }
  std::ostringstream text;
  text << usage << "\n" << options << alias_lines(options);
  write_out(text.str());
  return false;
}

CommandHelp help_of(int (*run)(const std::vector<std::string>& arguments)) {
  CommandHelp help;
  CommandHelp* const before = std::exchange(asked_help, &help);
  run({"--help"});
  asked_help = before;
  return help;
}

}  // namespace coppice::cli
