// Which JSON types a tool's arguments may have, by its schema.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace coppice::server {

namespace json_type {
inline constexpr unsigned null = 1, boolean = 2, integer = 4, fraction = 8, string = 16, list = 32,
                          object = 64, any = 127;
}  // namespace json_type

/// What a schema's "$ref" means within its document; null for what is no path into it.
const nlohmann::ordered_json* referred(const nlohmann::ordered_json& path,
                                       const nlohmann::ordered_json& document);

/// The schema of one value by itself: with the definitions of `document`, to which it may refer.
nlohmann::ordered_json with_definitions(const nlohmann::ordered_json& schema,
                                        const nlohmann::ordered_json& document);

/// The types of values that `schema` may admit, seen from outside: all that its type, enum, const,
/// anyOf, oneOf, allOf and local references leave. References lead into `document`.
unsigned types_of(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& document);

/// Of all arguments of all tools.
class ArgumentTypes {
 public:
  ArgumentTypes() = default;
  /// `tools` as in a chat's request: [{"type": "function", "function": {"name", "parameters"}}].
  explicit ArgumentTypes(const nlohmann::ordered_json& tools);
  /// Any for what no schema names.
  unsigned of(const std::string& tool, const std::string& argument) const;

 private:
  std::map<std::pair<std::string, std::string>, unsigned> types_;
};

/// JSON of an argument that is written bare, where text has no quotes: a value of one of `types`,
/// or else a string. A text that may be a string or another value is the other one.
std::string bare_value(std::string_view text, unsigned types);

}  // namespace coppice::server
