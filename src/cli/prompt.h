// The text that a command goes on from.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "cli/options.h"

namespace coppice::cli {

po::options_description prompt_options();

/// `text` with \n, \r, \t, \', \", \\ and \xHH turned into what they mean; other backslashes stay.
std::string unescaped(std::string_view text);

struct Prompt {
  bool ids = false;
  std::string text;
  std::vector<TokenId> tokens;
};
/// What standard input or the options give; checked before the models are loaded.
Prompt read_prompt(const po::variables_map& values);
/// The prompt that a file or pipe holds, less one newline at its end. Throws as read_all_of() does,
/// and Error(usage) if it is empty or not UTF-8.
std::string prompt_in_file(const std::string& file);

/// All of a stream. Throws Error(usage), which names `where`, beyond `most_mib` mebibytes.
std::string read_all(std::istream& in, const std::string& where, std::size_t most_mib);
/// All of a file or pipe. Throws Error(failure) if it cannot be read, too.
std::string read_all_of(const std::string& file, const std::string& where, std::size_t most_mib);

}  // namespace coppice::cli
