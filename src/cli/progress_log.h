// Progress where nothing can be written over: a line every so often.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

namespace coppice::cli {

/// "studying: 12%, about 14 min left"; `fraction` is 0 to 1, of what took `seconds` so far.
std::string progress_text(const std::string& what, double fraction, double seconds);

class ProgressLog {
 public:
  /// Writes to `out` every `seconds` at most, the first time after as long; never if that is 0.
  /// `clock` gives seconds.
  ProgressLog(std::ostream& out, double seconds, std::function<double()> clock);
  /// "coppice: " and progress_text().
  void show(const std::string& what, double fraction);

 private:
  std::ostream& out_;
  double seconds_;
  std::function<double()> clock_;
  std::string what_;
  double start_ = 0.0;  ///< of `what_`
  double last_;
};

}  // namespace coppice::cli
