// Structs that list their members (member_list.h) as JSON objects, in the list's order.
#pragma once

#include <nlohmann/json.hpp>

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

/// Throws what nlohmann::json throws for a member that is missing or of another type.
template <typename Json, HasMembers Struct>
void from_json(const Json& json, Struct& value) {
  Struct::members(value, [&](const char* name, auto& member) { json.at(name).get_to(member); });
}

}  // namespace study
}  // namespace coppice
