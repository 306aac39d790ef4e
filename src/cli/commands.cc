#include "cli/commands.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/study_folders.h"
#include "engine/policy_options.h"

namespace coppice::cli {

namespace {

/// By the names of other programs' commands, or by a slip; "" for anything else.
std::string command_meant_by(const std::string& name) {
  constexpr std::pair<std::string_view, const char*> others[] = {{"run", "'generate' or 'chat'"},
                                                                 {"cli", "'generate' or 'chat'"},
                                                                 {"complete", "'generate'"},
                                                                 {"bench", "'advise' or 'study'"},
                                                                 {"quantize", "'quantise'"},
                                                                 {"convert", "'quantise'"},
                                                                 {"server", "'serve'"}};
  for (const auto& [other, ours] : others) {
    if (name == other) return ours;
  }
  const std::string meant = nearest(name, command_names());
  return meant.empty() ? "" : quote(meant);
}

/// The commands for studies, in a build without them (COPPICE_BUILD_STUDIES=OFF).
bool is_left_out([[maybe_unused]] const std::string& name) {
#ifdef COPPICE_HAS_STUDIES
  return false;
#else
  constexpr std::string_view names[] = {"study",  "record", "replay",  "audit",
                                        "advise", "plan",   "workload"};
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view left_out) {
    return name == left_out || name.starts_with(cat(left_out, " "));
  });
#endif
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"generate", "", "continue a text", generate},
      {"chat", "", "talk with a model", chat},
      {"serve", "", "answer OpenAI's and Anthropic's APIs over HTTP", serve},
      {"tree", "", "draw one judged token tree", tree},
#ifdef COPPICE_HAS_STUDIES
      {"study", "", "measure policies on prompts, side by side", study},
      {"study compare", "DIR DIR", "settings that two studies have", study_compare},
      {"study merge", "NEW DIR...", "one study of several", study_merge},
      {"record", "", "keep what draft and target say around texts", record},
      {"replay", "FILE", "judge policies anew over a recording", replay},
      {"audit", "", "test whether speculation is lossless here", audit},
      {"advise", "", "measure which policy and tree size pay here", advise},
      {"plan", "", "measure acceptance by rank; plan Sequoia's trees for it", plan},
      {"workload", "KIND [FILE]", "replay trees of texts that share what they can", workload},
#endif
      {"rank", "", "have a part of a target that is split over processes", rank},
      {"quantise", "MODEL FILE", "write a model in fewer bits, as a GGUF file", quantise},
      {"info", "[MODEL]", "describe this machine and a model", info},
      {"completion", "bash|zsh", "print a shell's completion of all this", completion},
      {"man", "[COMMAND]", "print a manual page", man},
  };
  return all;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name.find(' ') == std::string::npos) names.push_back(command.name);
  }
  return names;
}

const Command& command_named(const std::string& name) {
  if (is_left_out(name)) {
    throw_usage(cat("this build leaves out coppice ", name,
                    ", as scripts/demo's does; scripts/build "
                    "and the build's folder make the rest"));
  }
  for (const Command& command : commands()) {
    if (name == command.name) return command;
  }
  if (name.starts_with('-')) {
    throw_usage(cat(quote(name), " is no command; options follow one, as in coppice generate ",
                    printable(name), " (see --help)"));
  }
  std::string names;
  for (const std::string& known : command_names()) names += (names.empty() ? "" : ", ") + known;
  const std::string meant = command_meant_by(name);
  const std::string advice = meant.empty() ? "" : cat("did you mean ", meant, "? Or ");
  throw_usage(cat(quote(name), " is no command; ", advice, "use one of ", names, " (see --help)"));
}

std::string overview() {
  std::string text = "coppice: lossless speculative decoding with dynamic token trees\n\n";
  for (const Command& command : commands()) {
    std::string call = command.name + " " + command.argument;
    call.resize(25, ' ');
    text += "  coppice " + call + command.what + "\n";
  }
  return text + "\n  coppice COMMAND --help (or coppice help COMMAND), coppice --version\n";
}

Values values_named(const std::string& name) {
  constexpr const char* between = "| [].";
  Values values;
  for (auto from = name.find_first_not_of(between); from != name.npos;) {
    const auto end = std::min(name.find_first_of(between, from), name.size());
    const std::string part = name.substr(from, end - from);
    from = name.find_first_not_of(between, end);
    if (part == "DIR") {
      values.folders = true;
    } else if (part == "MODEL") {
      values.models = true;
    } else if (part == "FILE") {
      values.files = true;
    } else if (part == "KIND") {
#ifdef COPPICE_HAS_STUDIES
      values.words = workload_kinds();
#endif
    } else if (part == "COMMAND") {
      for (const std::string& command : command_names()) values.words.push_back(command);
    } else if (std::islower(static_cast<unsigned char>(part[0])) != 0) {
      values.words.push_back(part);
    }
  }
  return values;
}

Values values_of(const po::option_description& option) {
  if (option.long_name() != "policy") return values_named(value_name(option));
  Values values;  // too many for the name
  for (const Policy policy : all_policies()) values.words.emplace_back(name_of(policy));
  return values;
}

std::string value_name(const po::option_description& option) {
  if (option.semantic()->max_tokens() == 0) return "";
  const std::string name = option.semantic()->name();
  return name.substr(0, name.find(" (="));
}

}  // namespace coppice::cli
