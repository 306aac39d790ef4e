#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "base/error.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace {

constexpr const char* help =
    "coppice: lossless speculative decoding with dynamic token trees\n"
    "\n"
    "  coppice generate   continue a text\n"
    "  coppice tree       draw one judged token tree\n"
    "  coppice info DIR   describe a model folder\n"
    "  coppice advise     measure which policy and tree size pay here\n"
    "  coppice audit      test whether speculation is lossless here\n"
    "\n"
    "  coppice COMMAND --help, coppice --version\n";

int run(const std::vector<std::string>& words) {
  using namespace coppice;
  if (words.empty())
    throw_usage("no command; use one of generate, tree, info, advise, audit (see --help)");
  const std::string& command = words[0];
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (command == "--help" || command == "-h" || command == "help") {
    cli::write_out(help);
    return 0;
  }
  if (command == "--version") {
    cli::write_out(cat("coppice ", version(), "\n"));
    return 0;
  }
  if (command == "generate") return cli::generate(rest);
  if (command == "tree") return cli::tree(rest);
  if (command == "info") return cli::info(rest);
  if (command == "advise") return cli::advise(rest);
  if (command == "audit") return cli::audit(rest);
  throw_usage(cat(quote(command),
                  " is no command; use one of generate, tree, info, advise, audit (see --help)"));
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error like a full disk
  const auto complain = [](const char* what, int code) {
    std::fprintf(stderr, "coppice: %s\n", what);
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
    return complain(error.what(), 1);
  }
}
