#include "cli/progress_log.h"

#include <cmath>
#include <ostream>
#include <utility>

#include "base/error.h"

namespace coppice::cli {
namespace {

std::string duration(double seconds) {
  if (seconds < 180.0) return cat(std::ceil(seconds), " s");
  if (seconds < 5400.0) return cat(std::ceil(seconds / 60.0), " min");
  return cat(std::ceil(seconds / 360.0) / 10.0, " h");
}

}  // namespace

std::string progress_text(const std::string& what, double fraction, double seconds) {
  std::string text = what;
  // A wait has no share that is done, only an end.
  if (!what.starts_with("waiting for ")) text += cat(": ", std::floor(100.0 * fraction), '%');
  if (fraction > 0.0 && fraction < 1.0 && seconds > 0.0) {
    text += cat(", about ", duration(seconds * (1.0 - fraction) / fraction), " left");
  }
  return text;
}

ProgressLog::ProgressLog(std::ostream& out, double seconds, std::function<double()> clock)
    : out_(out), seconds_(seconds), clock_(std::move(clock)), last_(clock_()) {}

void ProgressLog::show(const std::string& what, double fraction) {
  const double now = clock_();
  if (what != what_) {
    what_ = what;
    start_ = now;
  }
  if (seconds_ <= 0.0 || now - last_ < seconds_) return;
  last_ = now;
  out_ << "coppice: " << progress_text(what, fraction, now - start_) << std::endl;
}

}  // namespace coppice::cli
