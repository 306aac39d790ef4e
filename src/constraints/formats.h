// Values of a JSON schema's "format" that are regular languages.
#pragma once

#include <string>

namespace coppice::constraints {

/// The regular expression of a format's strings; empty if the format asserts nothing that coppice
/// knows. Throws Error(usage), which begins with `where`, for a standard format that is not
/// regular.
std::string format_pattern(const std::string& format, const std::string& where);

}  // namespace coppice::constraints
