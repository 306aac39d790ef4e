// Keys that programs know each other by.
#pragma once

#include <string>
#include <vector>

namespace coppice::cli {

/// The keys in a file, one a line, or, of "env:NAME", in a variable of the environment; none if
/// `source` is empty. Throws Error(usage) that names the option, if there is none.
std::vector<std::string> keys_in(const std::string& option, const std::string& source);

}  // namespace coppice::cli
