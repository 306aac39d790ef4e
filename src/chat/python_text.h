// How Python writes values as text.
#pragma once

#include <string>

#include "chat/value.h"

namespace coppice::chat {

/// str(): what {{ value }} prints. An undefined value is empty text.
Text str(const Value& value);
void append_str(const Value& value, Text& out);
/// repr(): as inside printed lists.
Text repr(const Value& value);
std::string float_text(double value);

/// format % value, with value a tuple for several.
Text printf_format(const Text& format, const Value& value);
/// "{} {0} {name} {0.key} {0[key]:>8}".format(...)
Text brace_format(const Text& format, const Arguments& arguments);

/// Entities for & < > ' ".
Text html_escaped(const Text& text);

/// `text` in a field of `width` code points; `align` is one of < > ^.
Text padded(const Text& text, std::int64_t width, char align, const Text& fill = " ");

}  // namespace coppice::chat
