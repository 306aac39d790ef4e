// JSON's values: which are whole numbers, and how they are written.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace coppice::server {

/// In one line. What is no UTF-8 becomes U+FFFD.
inline std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Whether a number with a point, such as 16.0, is an exact integer, as some clients write them.
inline bool is_whole_float(const nlohmann::ordered_json& json) {
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (!json.is_number_float()) return false;
  const auto number = json.get<double>();
  return std::trunc(number) == number && std::abs(number) <= exact;
}

}  // namespace coppice::server
