// The commands behind `coppice COMMAND`, and what --help, manual pages and completion say of them.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace coppice::cli {

struct Command {
  std::string name;      ///< "study compare" is one of its own
  std::string argument;  ///< beside options, as --help shows it: "DIR", "[COMMAND]", "bash|zsh"
  std::string what;
  /// Takes the words after its name and returns the exit code; errors are thrown.
  int (*run)(const std::vector<std::string>& arguments);
};

/// In the order of `coppice --help`.
const std::vector<Command>& commands();
/// Their names. A word of two is left out.
std::vector<std::string> command_names();
/// Throws Error(usage), which says what was probably meant.
const Command& command_named(const std::string& name);

/// `coppice --help`.
std::string overview();

/// What an option, or a command's argument, takes: words that stand in its name in small letters
/// (as in "N|auto"), folders (DIR), files (FILE), or folders and GGUF files (MODEL).
struct Values {
  std::vector<std::string> words;
  bool folders = false, files = false, models = false;
};
Values values_named(const std::string& name);
Values values_of(const po::option_description& option);

/// An option's value as --help calls it, without the default; "" for a flag.
std::string value_name(const po::option_description& option);

}  // namespace coppice::cli
