#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/nearest.h"
#include "cli/terminal.h"
#include "kernels/cpu/instruction_set.h"

namespace {

struct Command {
  std::string name, argument, what;
  int (*run)(const std::vector<std::string>& arguments);
};

const std::vector<Command>& commands() {
  using namespace coppice;
  static const std::vector<Command> all = {
      {"generate", "", "continue a text", cli::generate},
      {"chat", "", "talk with a model", cli::chat},
      {"tree", "", "draw one judged token tree", cli::tree},
      {"study", "", "measure policies on prompts, side by side", cli::study},
      {"record", "", "keep what draft and target say around texts", cli::record},
      {"replay", "FILE", "judge policies anew over a recording", cli::replay},
      {"audit", "", "test whether speculation is lossless here", cli::audit},
      {"advise", "", "measure which policy and tree size pay here", cli::advise},
      {"plan", "", "measure acceptance by rank; plan Sequoia's trees for it", cli::plan},
      {"info", "DIR", "describe a model folder", cli::info},
  };
  return all;
}

std::string help() {
  std::string text = "coppice: lossless speculative decoding with dynamic token trees\n\n";
  for (const Command& command : commands()) {
    std::string call = command.name + " " + command.argument;
    call.resize(14, ' ');
    text += "  coppice " + call + command.what + "\n";
  }
  return text + "\n  coppice COMMAND --help, coppice --version\n";
}

int run(const std::vector<std::string>& words) {
  using namespace coppice;
  std::string names;
  for (const Command& command : commands()) names += (names.empty() ? "" : ", ") + command.name;
  if (words.empty()) throw_usage(cat("no command; use one of ", names, " (see --help)"));
  const std::string& name = words[0];
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (name == "--help" || name == "-h" || name == "help") {
    cli::write_out(help());
    return 0;
  }
  if (name == "--version") {
    cli::write_out(cat("coppice ", version(), "\n"));
    return 0;
  }
  for (const Command& command : commands()) {
    if (name != command.name) continue;
    cpu::instruction_set();  // before anything is computed
    return command.run(rest);
  }
  std::vector<std::string> known;
  for (const Command& command : commands()) known.push_back(command.name);
  const std::string meant = cli::nearest(name, known);
  const std::string advice = meant.empty() ? "" : cat("did you mean ", quote(meant), "? Or ");
  throw_usage(cat(quote(name), " is no command; ", advice, "use one of ", names, " (see --help)"));
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error like a full disk
  const auto complain = [](const char* what, int code) {
    std::fprintf(stderr, "coppice: %s\n", what);  // takes no memory
    return code;
  };
  try {
    return run({argv + 1, argv + argc});
  } catch (const coppice::cli::ClosedPipe&) {
    return 0;
  } catch (const coppice::Error& error) {
    return complain(error.what(), error.kind() == coppice::ErrorKind::usage ? 2 : 1);
  } catch (const std::bad_alloc&) {
    return complain("out of memory; use a smaller model, --kv-tokens or --tree-size", 1);
  } catch (const std::exception& error) {
    return complain(coppice::printable(error.what()).c_str(), 1);
  }
}
