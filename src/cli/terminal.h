// Writing to a person or a pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "base/files.h"
#include "cli/progress_log.h"
#include "coppice.h"

namespace coppice::cli {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
/// A terminal that shows colours and whose owner has not refused them (NO_COLOR).
bool stdout_takes_colour();

/// Thrown when the reader of standard output has gone: the program ends quietly.
struct ClosedPipe {};

/// Writes all of `text` to standard output at once, in place of a progress line that is shown.
/// Throws ClosedPipe, or Error(failure) for a full disk and the like.
void write_out(std::string_view text);

/// Seconds between lines of progress where standard error is no terminal.
inline constexpr double usual_progress_seconds = 30.0;

/// Progress on standard error: what is done, how far, the time left. On a terminal a line that is
/// written over, cut to its width, shown only after a second (COPPICE_PROGRESS_AFTER: another
/// number of seconds) and never over text that write_out() left within a line. Elsewhere a line
/// every so often (ProgressLog).
class ProgressLine {
 public:
  /// `seconds` between lines where standard error is no terminal; 0: none.
  /// COPPICE_PROGRESS_EVERY: another number in place of the usual one.
  explicit ProgressLine(std::optional<double> seconds = {});
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& what, double fraction);
  /// Shows at once what will take some seconds and tells nothing of itself before its end.
  void wait_for(const std::string& what);
  /// What an engine reports while it loads or measures.
  void show(const LoadEvent& event);
  void clear();

 private:
  void draw(std::string line);

  bool on_terminal_;
  double after_seconds_ = 1.0;
  std::string what_;
  double start_ = 0.0;
  double last_ = 0.0;
  ProgressLog log_;
};

/// While it lives, Ctrl-C asks for an end instead of ending the program; a second one ends it. One
/// at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  static bool interrupted();
  /// Asked to stop by Ctrl-C, whatever the program waits for.
  std::stop_token token() const { return source_.get_token(); }

 private:
  FileHandle event_;  ///< wakes the thread: a signal's handler may ask nobody to stop
  std::stop_source source_;
  std::thread thread_;
};
/// Exit code of a command that Ctrl-C ended early.
inline constexpr int interrupted_exit = 130;

/// A line for whoever runs the command, on standard error: "coppice: " and printable() text.
void tell(std::string_view message);

/// Generated text as a terminal may have it. A model can write any character, and some make a
/// terminal do things: controls are escaped as by printable(), but for line ends and tabs; marks
/// of direction, which belong to texts, stand. `text` is valid UTF-8. Pipes and files get the text
/// itself.
std::string for_terminal(std::string_view text);
/// write_out() of generated text: for_terminal() on a terminal.
void write_generated(std::string_view text);

}  // namespace coppice::cli
