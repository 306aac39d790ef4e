// JSON from clients: bounded in depth and in members, in the order in which it came.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/talk/json_values.h"

namespace coppice::server {

using Json = nlohmann::ordered_json;

/// Throws ApiError: no JSON, no object, or one too deep or with too many members.
Json parse_object(std::string_view body);

/// The same of a text within a request; null for what is no object.
Json parse_object_or_null(std::string_view text);

inline Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace coppice::server
