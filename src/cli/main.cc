#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/build_commit.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/out_of_memory.h"
#include "cli/terminal.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda_code.h"

namespace {

/// What --version says of the CUDA module; nothing where it is not installed.
std::string cuda_lines() {
  using coppice::cat;
  const coppice::CudaCode code = coppice::cuda_code();
  if (code.file.empty()) return "";
  if (!code.why_not.empty()) return cat("no CUDA: ", code.why_not, "\n");
  std::string text = cat("CUDA code for ", code.architectures, "\n");
  if (code.card) text += cat(code.card->card, ": ", code.card->kernels, "\n");
  return text;
}

int run(const std::vector<std::string>& words) {
  using namespace coppice;
  if (words.empty()) {
    std::string names;
    for (const std::string& name : cli::command_names())
      names += (names.empty() ? "" : ", ") + name;
    throw_usage(cat("no command; use one of ", names, " (see --help)"));
  }
  const std::string& name = words[0];
  const bool named = name == "help" && words.size() > 1;
  if (!named && (name == "--help" || name == "-h" || name == "help")) {
    cli::write_out(cli::overview());
    return 0;
  }
  if (named) {
    std::string command = words[1];
    for (std::size_t i = 2; i < words.size(); ++i) command += " " + words[i];
    return cli::command_named(command).run({"--help"});
  }
  if (name == "--version") {
    cli::write_out(cat("coppice ", version(), " (", build_commit(), ")\n", cuda_lines()));
    return 0;
  }
  const cli::Command& command = cli::command_named(name);
  cpu::instruction_set();  // before anything is computed
  return command.run({words.begin() + 1, words.end()});
}

// No file that is opened may take the place of a standard stream that was closed.
void keep_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(coppice::cli::end_out_of_memory);
  keep_standard_streams();
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
    std::fputs(coppice::cli::out_of_memory_line, stderr);
    return 1;
  } catch (const std::exception& error) {
    try {
      return complain(coppice::Error(coppice::ErrorKind::failure, error.what()).what(), 1);
    } catch (const std::bad_alloc&) {
      return complain("out of memory", 1);
    }
  }
}
