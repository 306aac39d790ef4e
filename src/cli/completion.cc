// `coppice completion`: what shells complete, from the options that --help lists.
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/other_names.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// All ways to write an option of a command: "--target", "-m", "--model".
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all = aliases_of(name);
  all.insert(all.begin(), "--" + name);
  return all;
}

/// Those that are offered: others' long names would crowd the list.
std::vector<std::string> offered(const std::string& name) {
  std::vector<std::string> some = spellings(name);
  std::erase_if(
      some, [&](const std::string& word) { return word.starts_with("--") && word != "--" + name; });
  return some;
}

// The words that may follow it to name another command: compare behind study.
std::vector<std::string> parts_of(const Command& command) {
  std::vector<std::string> parts;
  for (const Command& part : commands()) {
    if (part.name.starts_with(command.name + " ")) {
      parts.push_back(part.name.substr(command.name.size() + 1));
    }
  }
  return parts;
}

// --- bash -------------------------------------------------------------------------------------

std::string bash_values(const Values& values) {
  std::string calls;
  if (!values.words.empty()) calls += cat(" _coppice_words '", joined(values.words), "';");
  if (values.files) calls += " _coppice_paths -f;";
  if (values.folders || values.models) calls += " _coppice_paths -d;";
  if (values.models) calls += " _coppice_paths -f -X '!*.gguf';";
  return calls;
}

std::string bash_command(const Command& command) {
  const CommandHelp help = help_of(command.run);
  std::vector<std::string> options = {"--help"};
  std::string cases;
  for (const auto& option : help.options.options()) {
    const std::vector<std::string> names = offered(option->long_name());
    options.insert(options.end(), names.begin(), names.end());
    if (value_name(*option).empty()) continue;
    cases += cat("        ", joined(spellings(option->long_name()), "|"), ")",
                 bash_values(values_of(*option)), " return ;;\n");
  }
  std::string text = cat("    ", shell_word(command.name), ")\n");
  if (!cases.empty()) text += cat("      case $previous in\n", cases, "      esac\n");
  text += cat("      if [[ $current == -* ]]; then _coppice_words '", joined(options), "'; else");
  const std::vector<std::string> parts = parts_of(command);
  if (!parts.empty()) text += cat(" _coppice_words '", joined(parts), "';");
  const std::string values = bash_values(values_named(command.argument));
  return text + (values.empty() && parts.empty() ? " :;" : values) + " fi ;;\n";
}

std::string bash_script() {
  std::string text = R"(# bash completion of coppice, made by coppice completion bash

_coppice_words() { COMPREPLY+=($(compgen -W "$1" -- "$current")); }
_coppice_paths() {
  local path
  while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen "$@" -- "$current")
  compopt -o filenames 2>/dev/null
}

_coppice() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]}
  COMPREPLY=()
  # --option=value comes as three words.
  if [[ $current == '=' ]]; then
    current=
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD == 1)); then
)";
  text += cat("    _coppice_words '", joined(command_names()),
              " --help --version'\n    return\n  fi\n");
  text += "  case \"$command ${COMP_WORDS[2]}\" in\n";
  for (const Command& command : commands()) {
    if (command.name.find(' ') == std::string::npos) continue;
    text += cat("    ", shell_word(command.name),
                ") ((COMP_CWORD > 2)) && command=", shell_word(command.name), " ;;\n");
  }
  text += "  esac\n  case $command in\n";
  for (const Command& command : commands()) text += bash_command(command);
  text += cat("    help) _coppice_words '", joined(command_names()), "' ;;\n");
  return text + "  esac\n}\n\ncomplete -F _coppice coppice\n";
}

// --- zsh --------------------------------------------------------------------------------------

// For a word in single quotes that _arguments takes apart at brackets and colons.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += cat('\\', c);
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string zsh_values(const Values& values) {
  std::vector<std::string> actions;
  if (values.folders) actions.emplace_back("_files -/");
  if (values.files) actions.emplace_back("_files");
  if (values.models) actions.emplace_back("_files -g \"*.gguf\"");  // and folders
  if (!values.words.empty() && actions.empty()) return cat("(", joined(values.words), ")");
  return actions.empty() ? " " : actions.front();
}

std::string zsh_command(const Command& command) {
  const CommandHelp help = help_of(command.run);
  std::string text = cat("    ", shell_word(command.name), ")\n      _arguments -S \\\n");
  for (const auto& option : help.options.options()) {
    const std::string name = value_name(*option);
    for (const std::string& spelling : offered(option->long_name())) {
      text += cat("        '*", spelling, spelling.starts_with("--") && !name.empty() ? "=" : "",
                  "[", zsh_text(option->description()), "]");
      if (!name.empty()) text += cat(":", zsh_text(name), ":", zsh_values(values_of(*option)));
      text += "' \\\n";
    }
  }
  text += "        '(-h --help)'{-h,--help}'[print its options and exit]'";
  if (const std::vector<std::string> parts = parts_of(command); !parts.empty()) {
    text += cat(" \\\n        '1:command:(", joined(parts), ")'");
  }
  if (!command.argument.empty()) {
    text += cat(" \\\n        '*:", zsh_text(command.argument), ":",
                zsh_values(values_named(command.argument)), "'");
  }
  return text + " ;;\n";
}

std::string zsh_script() {
  std::string text =
      "#compdef coppice\n# zsh completion of coppice, made by coppice completion zsh\n\n"
      "_coppice() {\n  local -a commands\n  commands=(\n";
  for (const std::string& name : command_names()) {
    text += cat("    '", name, ":", zsh_text(command_named(name).what), "'\n");
  }
  text +=
      "  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n";
  for (const Command& command : commands()) {
    const auto blank = command.name.find(' ');
    if (blank == std::string::npos) continue;
    text += cat("  if [[ $command == ", command.name.substr(0, blank),
                " && $words[2] == ", command.name.substr(blank + 1),
                " ]] && ((CURRENT > 2)); then\n    command=", shell_word(command.name),
                "\n    shift words\n    ((CURRENT--))\n  fi\n");
  }
  text += "  case $command in\n";
  for (const Command& command : commands()) text += zsh_command(command);
  text += "    help) _describe command commands ;;\n";
  return text + "  esac\n}\n\n_coppice \"$@\"\n";
}

}  // namespace

int completion(const std::vector<std::string>& arguments) {
  po::options_description options("Options"), hidden;
  hidden.add_options()("shell", po::value<std::string>());
  po::positional_options_description positional;
  positional.add("shell", 1);
  po::variables_map values;
  if (!parse(arguments, options,
             "coppice completion bash|zsh: print what completes coppice's commands, options and "
             "values\n\n"
             "  source <(coppice completion bash)\n"
             "  coppice completion zsh > ~/.zfunc/_coppice     # a folder of $fpath\n\n"
             "An installation has both where the shells look for them.\n",
             values, hidden, positional)) {
    return 0;
  }
  const std::string shell = text_in(values, "shell");
  if (shell.empty()) throw_usage("completion: no shell is named; use bash or zsh");
  write_out(choice_in("completion:", shell, {"bash", "zsh"}) == "bash" ? bash_script()
                                                                       : zsh_script());
  return 0;
}

}  // namespace coppice::cli
