// A terminal that does not show what is typed, for as long as something else is written on it.
#pragma once

namespace coppice::cli {

/// While it lives, what a person types on standard input is kept for the next prompt and not
/// shown. Does nothing where that is no terminal, or one of another process in the foreground. The
/// terminal is put back at the end, and before a signal ends the program. One at a time.
class QuietKeys {
 public:
  QuietKeys();
  ~QuietKeys();
  QuietKeys(const QuietKeys&) = delete;
  QuietKeys& operator=(const QuietKeys&) = delete;

  /// Puts the terminal back, if some object has it; may be called within a signal's handler.
  static void show_again();

 private:
  bool watched_ = false;
};

}  // namespace coppice::cli
