// Structs that list their members (member_list.h) as JSON objects, in the list's order.
#pragma once

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/json_file.h"
#include "coppice.h"

namespace coppice {

/// What is neither name is read as the first.
NLOHMANN_JSON_SERIALIZE_ENUM(Acceptance, {{Acceptance::rejection, "rejection"},
                                          {Acceptance::coupled, "coupled"}})

namespace study {

template <typename Struct>
concept HasMembers = requires(Struct& value) {
  Struct::members(value, [](const char*, auto&) {});
};

template <typename Json, HasMembers Struct>
void to_json(Json& json, const Struct& value) {
  Struct::members(value, [&](const char* name, const auto& member) { json[name] = member; });
}

/// Throws Error(failure), a text without a place, for a member of another type.
template <typename Json>
[[noreturn]] void refuse_member(const char* name, const Json& value) {
  throw_failure(cat('"', name, "\" is ", shown(value), ", which it cannot be"));
}

/// Throws Error(failure), a text without a place, that names a member that is missing or of another
/// type.
template <typename Json, HasMembers Struct>
void from_json(const Json& json, Struct& value) {
  Struct::members(value, [&](const char* name, auto& member) {
    if (!json.contains(name)) throw_failure(cat('"', name, "\" is missing"));
    bool fits = true;
    try {
      json[name].get_to(member);
      // The library cuts off what a whole number of this type cannot hold.
      if constexpr (std::is_integral_v<std::remove_reference_t<decltype(member)>>) {
        fits = json[name] == member;
      }
    } catch (const nlohmann::json::exception&) {
      fits = false;
    } catch (const Error& error) {
      throw_failure(cat(name, ": ", error.what()));
    }
    if (!fits) refuse_member(name, json[name]);
  });
}

}  // namespace study
}  // namespace coppice
