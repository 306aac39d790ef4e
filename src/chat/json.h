// Values from JSON and to JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/value.h"

namespace coppice::chat {

/// Parses JSON into values that keep the order of keys; all text in it is marked `foreign`. `where`
/// names it in messages. Throws Error(usage): no JSON, not UTF-8, a key twice, deep nesting.
Value parse_json(std::string_view json, const std::string& where, bool foreign);

struct JsonStyle {
  std::optional<Text> indent;  ///< of one level; none: everything in one line
  Text item_separator = ", ";
  Text key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
/// As Python's json.dumps writes it. Throws TemplateError for what JSON has no form for.
Text to_json(const Value& value, const JsonStyle& style = {});

}  // namespace coppice::chat
