// Lists of names for messages.
#pragma once

#include <string>
#include <string_view>

namespace coppice {

/// The names of values, as name_of() gives them, in their order, with `between` between them.
template <typename Values>
std::string joined_names(const Values& values, std::string_view between = ", ") {
  std::string names;
  for (const auto value : values) {
    if (!names.empty()) names += between;
    names += name_of(value);
  }
  return names;
}

}  // namespace coppice
