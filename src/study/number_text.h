// Numbers as tables, figures and reports print them.
#pragma once

#include <string>

#include "study/figures/text.h"
#include "study/statistics.h"

namespace coppice::study {

/// printf to a string, of any length.
[[gnu::format(printf, 1, 2)]] std::string line(const char* format, ...);

/// A number in as few digits as name it, whatever the locale.
std::string number_text(double number);
/// "4.03 [3.26, 5.56]"; the value alone where there is no interval; with a star behind it if it
/// compares times of two runs of the program.
std::string with_interval(const Estimate& estimate, int digits, bool of_two_runs = false);
/// The same with signs: "+0.22 [+0.11, +0.34]".
std::string signed_interval(const Estimate& estimate, int digits);
/// "0.004", "<0.001", "-" for no number.
std::string p_text(double p);
/// Six digits, empty for no number: for programs.
std::string exact(double value);
/// Per cent with one digit after the point; "-" of nothing.
std::string percent(double part, double whole);

}  // namespace coppice::study
