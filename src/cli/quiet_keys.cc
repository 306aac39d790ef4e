#include "cli/quiet_keys.h"

#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace coppice::cli {
namespace {

// All that end a program, but for Ctrl-C, which InterruptWatch hears.
constexpr std::array ending = {SIGHUP, SIGQUIT, SIGTERM, SIGABRT, SIGSEGV,
                               SIGBUS, SIGFPE,  SIGILL,  SIGXCPU};

volatile std::sig_atomic_t is_quiet = 0;
termios shown{};
std::array<struct sigaction, ending.size()> former{};

extern "C" void end_by_signal(int number) {
  QuietKeys::show_again();
  std::signal(number, SIG_DFL);
  std::raise(number);  // takes effect as the handler returns
}

}  // namespace

void QuietKeys::show_again() {
  if (is_quiet == 0) return;
  const int error = errno;
  is_quiet = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &shown);  // TCSAFLUSH would lose what was typed
  errno = error;
}

QuietKeys::QuietKeys() {
  // Who is in the background would be stopped.
  if (isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) != getpgrp() ||
      tcgetattr(STDIN_FILENO, &shown) != 0) {
    return;
  }
  struct sigaction action {};
  action.sa_handler = end_by_signal;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < ending.size(); ++i) {
    sigaction(ending[i], nullptr, &former[i]);
    if (former[i].sa_handler == SIG_DFL) sigaction(ending[i], &action, nullptr);
  }
  termios quiet = shown;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
  is_quiet = 1;
  if (tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet) != 0) is_quiet = 0;
  watched_ = true;
}

QuietKeys::~QuietKeys() {
  show_again();
  if (!watched_) return;
  for (std::size_t i = 0; i < ending.size(); ++i) {
    if (former[i].sa_handler == SIG_DFL) sigaction(ending[i], &former[i], nullptr);
  }
}

}  // namespace coppice::cli
