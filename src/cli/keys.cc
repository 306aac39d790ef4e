#include "cli/keys.h"

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/files.h"

namespace coppice::cli {

std::vector<std::string> keys_in(const std::string& option, const std::string& source) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  constexpr std::string_view environment = "env:";
  if (source.empty()) return {};
  std::string text;
  if (source.starts_with(environment)) {
    const std::string name = source.substr(environment.size());
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) {
      throw_usage(
          cat("--", option, " ", quote(source), ": the environment has no variable ", quote(name)));
    }
    text = value;
  } else {
    if (!is_there(source)) {
      throw_usage(cat("--", option, " ", quote(source),
                      ": no such file; name a file of keys, or a variable as env:NAME, never the "
                      "key itself"));
    }
    text = read_file(source, option.c_str(), most_bytes);
  }
  std::vector<std::string> keys;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto last = line.find_last_not_of(" \t\r");
    line.erase(last == line.npos ? 0 : last + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) {
    throw_usage(cat("--", option, " ", quote(source), ": there is no key in it"));
  }
  return keys;
}

}  // namespace coppice::cli
