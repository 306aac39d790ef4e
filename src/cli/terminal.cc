#include "cli/terminal.h"

#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "base/start_thread.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "cli/quiet_keys.h"
#include "engine/load_words.h"

namespace coppice::cli {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
volatile std::sig_atomic_t interrupt_event = -1;  // of the watch that lives

void wake(int event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
}

// What is on the terminal, which standard output and standard error share.
ProgressLine* progress_on_screen = nullptr;
bool text_within_line = false;

double from_environment(const char* name, double usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atof(text);
}

extern "C" void on_second_interrupt(int) {
  QuietKeys::show_again();
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);  // takes effect as the handler returns
}

extern "C" void on_interrupt(int) {
  const int error = errno;
  interrupt_seen = 1;
  std::signal(SIGINT, on_second_interrupt);
  wake(interrupt_event);
  errno = error;
}

}  // namespace

bool stdin_is_terminal() { return isatty(STDIN_FILENO) != 0; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) != 0; }
bool stdout_takes_colour() {
  const char* refused = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return stdout_is_terminal() && (refused == nullptr || *refused == '\0') &&
         (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

void write_out(std::string_view text) {
  if (text.empty()) return;
  if (stdout_is_terminal()) {
    if (progress_on_screen != nullptr) progress_on_screen->clear();
    text_within_line = text.back() != '\n';
  }
  if (write_all(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) throw ClosedPipe{};
  throw_failure(cat("standard output: ", std::strerror(errno),
                    errno == ENOSPC ? "; free some space or redirect elsewhere"
                                    : "; redirect it to where it can be written"));
}

ProgressLine::ProgressLine(std::optional<double> seconds)
    : on_terminal_(stderr_is_terminal()),
      after_seconds_(from_environment("COPPICE_PROGRESS_AFTER", 1.0)),
      log_(std::cerr,
           seconds ? *seconds : from_environment("COPPICE_PROGRESS_EVERY", usual_progress_seconds),
           now_seconds) {}
ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& what, double fraction) {
  if (!on_terminal_) return log_.show(what, fraction);
  if (text_within_line) return;
  const double now = now_seconds();
  if (what != what_) {
    what_ = what;
    start_ = now;
    last_ = 0.0;
  }
  const double elapsed = now - start_;
  if (elapsed < after_seconds_ || now - last_ < 0.1) return;
  last_ = now;
  draw(progress_text(what, fraction, elapsed));
}

void ProgressLine::wait_for(const std::string& what) {
  constexpr double usual_seconds = 2.0;
  if (!on_terminal_) return log_.show(what, 0.0);
  if (!text_within_line && after_seconds_ <= usual_seconds) draw(cat(what, ", for some seconds"));
}

void ProgressLine::draw(std::string line) {
  // A line that wraps could not be taken off again.
  winsize screen{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &screen) == 0 && screen.ws_col > 0) {
    line.resize(std::min<std::size_t>(line.size(), screen.ws_col - 1U));
  }
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  progress_on_screen = this;
}

void ProgressLine::show(const LoadEvent& event) {
  if (std::strcmp(event.what, "costs") != 0) {
    show(words_of(event), event.fraction);
  } else if (event.fraction < 1.0) {
    wait_for("measuring costs of this pair, once");
  } else {
    clear();
  }
}

void ProgressLine::clear() {
  if (progress_on_screen != this) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  progress_on_screen = nullptr;
}

InterruptWatch::InterruptWatch() : event_(::eventfd(0, EFD_CLOEXEC)) {
  if (event_.get() < 0) {
    throw_failure(cat("Ctrl-C cannot be watched: ", std::strerror(errno), "; close some files"));
  }
  interrupt_seen = 0;
  interrupt_event = event_.get();
  thread_ = start_thread([this] {
    std::uint64_t count = 0;
    while (::read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
    if (interrupted()) source_.request_stop();
  });
  std::signal(SIGINT, on_interrupt);
}
InterruptWatch::~InterruptWatch() {
  std::signal(SIGINT, SIG_DFL);
  interrupt_event = -1;
  wake(event_.get());
  thread_.join();
}
bool InterruptWatch::interrupted() { return interrupt_seen != 0; }

void tell(std::string_view message) {
  std::cerr << cat("coppice: ", printable(message), "\n") << std::flush;
}

std::string for_terminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const int bytes = utf8_sequence(text);
    const auto length = static_cast<std::size_t>(std::max(bytes, 1));
    const auto first = static_cast<unsigned char>(text[0]);
    const bool stands = first == '\n' || first == '\t';
    const bool c1 = length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    const bool control = bytes <= 0 || first < 0x20 || first == 0x7f || c1;
    const std::string_view character = text.substr(0, length);
    out += control && !stands ? printable(character) : std::string(character);
    text.remove_prefix(length);
  }
  return out;
}

void write_generated(std::string_view text) {
  if (stdout_is_terminal()) {
    write_out(for_terminal(text));
  } else {
    write_out(text);
  }
}

}  // namespace coppice::cli
