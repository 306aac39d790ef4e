// The script by which a page's tables can be sorted.
#pragma once

#include <string_view>

namespace coppice::study {

/// Makes a button of every column's name, for pointer and keyboard: rows ascend, descend, then
/// stand as they were. Numbers go by their value, intervals by their estimate, empty cells last.
/// Free of what XML would not take as it stands.
extern const std::string_view table_script;

/// "sha256-" and the script's hash in base64, by which a page's policy allows this script and no
/// other.
extern const std::string_view table_script_hash;

}  // namespace coppice::study
