// JSON from clients: bounded in depth and in members, in the order in which it came.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coppice::server {

using Json = nlohmann::ordered_json;

/// Throws ApiError: no JSON, no object, or one too deep or with too many members.
Json parse_object(std::string_view body);

/// The same of a text within a request; null for what is no object.
Json parse_object_or_null(std::string_view text);

/// In one line. What is no UTF-8 becomes U+FFFD.
inline std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace coppice::server
