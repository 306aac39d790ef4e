// `coppice man`: manual pages, from what --help prints.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/other_names.h"
#include "cli/terminal.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

/// Text as roff's man macros print it.
std::string roff(const std::string& text) {
  std::string out;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    begins_line = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-' || c == '~' || c == '^' || c == '`' || c == '\'') {
      static const std::string plain = "-~^`'",
                               names[] = {"\\-", "\\(ti", "\\(ha", "\\(ga", "\\(aq"};
      out += names[plain.find(c)];
    } else {
      out += c;
    }
  }
  return out;
}

/// "study compare" as "coppice-study-compare"; the first page is "coppice".
std::string page_name(const Command* command) {
  if (command == nullptr) return "coppice";
  std::string name = "coppice-" + command->name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string heading(const std::string& name, const std::string& what) {
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return cat(".TH \"", roff(title), "\" 1 \"\" \"coppice ", version(), "\"\n.SH NAME\n", roff(name),
             " \\- ", roff(what), "\n");
}

std::string verbatim(const std::string& text) {
  return cat(".nf\n", roff(text), text.ends_with('\n') ? "" : "\n", ".fi\n");
}

std::string entry(const std::string& bold, const std::string& value, const std::string& what) {
  return cat(".TP\n\\fB", roff(bold), "\\fR",
             value.empty() ? "" : cat(" \\fI", roff(value), "\\fR"), "\n", roff(what), "\n");
}

std::string default_of(const po::option_description& option) {
  const std::string name = option.semantic()->name();
  const auto at = name.find(" (=");
  return at == name.npos ? "" : cat(" (default: ", name.substr(at + 3, name.size() - at - 4), ")");
}

std::string command_page(const Command& command) {
  const CommandHelp help = help_of(command.run);
  // The first line is "coppice COMMAND: what it does".
  const std::string usage = help.usage.substr(help.usage.find(": ") + 2);
  std::string text = heading(page_name(&command), command.what);
  text += cat(".SH SYNOPSIS\n.B coppice ", command.name, "\n", roff(command.argument),
              command.argument.empty() ? "" : " ", "[options]\n.SH DESCRIPTION\n", verbatim(usage));
  text += ".SH OPTIONS\n";
  for (const auto& option : help.options.options()) {
    std::string names;
    for (const std::string& alias : aliases_of(option->long_name())) names += cat(alias, ", ");
    text += entry(cat(names, "--", option->long_name()), value_name(*option),
                  option->description() + default_of(*option));
  }
  text += entry("-h, --help", "", "print this and exit");
  return text + ".SH SEE ALSO\n.BR coppice (1)\n";
}

std::string main_page() {
  std::string text = heading("coppice", "lossless speculative decoding with dynamic token trees");
  text +=
      ".SH SYNOPSIS\n.B coppice\n.I COMMAND\n[options]\n.SH DESCRIPTION\n"
      "coppice runs large language models several times faster without changing one word\\(aqs "
      "probability: a small draft model grows a tree of guesses, and the target model judges "
      "the whole tree in one pass.\n.SH COMMANDS\n";
  for (const Command& command : commands()) {
    text += entry("coppice " + command.name, command.argument,
                  cat(command.what, "; see ", page_name(&command), "(1)"));
  }
  text += cat(".SH EXIT STATUS\n", entry("0", "", "success"), entry("1", "", "failure"),
              entry("2", "", "wrong usage"), entry("3", "", "audit: not decided"),
              entry("130", "", "ended by Ctrl-C"));
  text += ".SH ENVIRONMENT\n" + entry("COPPICE_MODELS", "", "folder of the shipped pair") +
          entry("COPPICE_CPU_ISA", "",
                "most of the instruction set that may be used: sse4, avx2, avx512, avx512_bf16 or "
                "amx") +
          entry("COPPICE_CUDA_MODULE", "", "the CUDA backend's file or folder") +
          entry("COPPICE_PROGRESS_AFTER", "", "seconds until progress is shown on a terminal") +
          entry("COPPICE_PROGRESS_EVERY", "",
                "seconds between lines of progress where standard error is no terminal (30); 0: "
                "none") +
          entry("XDG_CACHE_HOME", "", "measured costs are kept in its folder coppice");
  return text;
}

}  // namespace

int man(const std::vector<std::string>& arguments) {
  po::options_description options("Options"), hidden;
  options.add_options()("out", po::value<std::string>()->value_name("DIR"),
                        "write all pages there, as files like coppice-generate.1");
  hidden.add_options()("command", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("command", -1);
  po::variables_map values;
  if (!parse(arguments, options,
             "coppice man [COMMAND]: print a manual page\n\n"
             "  coppice man generate | man -l -\n"
             "  coppice man --out ~/.local/share/man/man1\n\n"
             "An installation has all pages: man coppice, man coppice-generate.\n",
             values, hidden, positional)) {
    return 0;
  }
  std::string name;
  if (values.count("command") != 0) {
    for (const std::string& word : values["command"].as<std::vector<std::string>>()) {
      name += (name.empty() ? "" : " ") + word;
    }
  }
  const fs::path out = text_in(values, "out");
  if (out.empty()) {
    write_out(name.empty() ? main_page() : command_page(command_named(name)));
    return 0;
  }
  if (!name.empty()) throw_usage("man: --out writes all pages; leave out the command");
  write_file(out / "coppice.1", main_page());
  for (const Command& command : commands()) {
    write_file(out / (page_name(&command) + ".1"), command_page(command));
  }
  return 0;
}

}  // namespace coppice::cli
