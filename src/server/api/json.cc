#include "server/api/json.h"

#include <vector>

#include "base/error.h"
#include "server/api/api_error.h"

namespace coppice::server {
namespace {

constexpr int most_depth = 128;
// An ordered object looks for a name in all that it has.
constexpr std::size_t most_members = 1024, most_members_in_all = 200000;

}  // namespace

Json parse_object(std::string_view body) {
  std::vector<std::size_t> members;  // by depth
  std::size_t all = 0;
  const auto check = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > most_depth) {
      throw ApiError(400, cat("the body's JSON is nested deeper than ", most_depth, " levels"));
    }
    if (event == Json::parse_event_t::object_start) members.push_back(0);
    if (event == Json::parse_event_t::object_end) members.pop_back();
    if (event == Json::parse_event_t::key &&
        (++members.back() > most_members || ++all > most_members_in_all)) {
      throw ApiError(400, cat("the body's JSON has more than ", most_members,
                              " members in an object, or ", most_members_in_all, " in all"));
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(body, check);
  } catch (const Json::parse_error& error) {
    throw ApiError(400, cat("the body is no valid JSON: see byte ", error.byte), "",
                   "invalid_json");
  } catch (const Json::exception&) {
    throw ApiError(400, "the body is no valid JSON: a number in it is too large", "",
                   "invalid_json");
  }
  if (!json.is_object()) throw ApiError(400, "the body is no JSON object", "", "invalid_json");
  return json;
}

Json parse_object_or_null(std::string_view text) {
  try {
    return parse_object(text);
  } catch (const ApiError&) {
    return nullptr;
  }
}

}  // namespace coppice::server
