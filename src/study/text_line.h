// Printing to a string.
#pragma once

#include <string>

namespace coppice::study {

/// printf to a string, of any length.
[[gnu::format(printf, 1, 2)]] std::string line(const char* format, ...);

}  // namespace coppice::study
