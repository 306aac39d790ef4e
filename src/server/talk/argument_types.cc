#include "server/talk/argument_types.h"

#include <algorithm>
#include <cmath>

#include "server/talk/json_scanner.h"
#include "server/talk/json_values.h"
#include "server/talk/pythonic.h"
#include "server/talk/words.h"

namespace coppice::server {
namespace {

using Json = nlohmann::ordered_json;
using namespace json_type;

constexpr int most_references = 16;

unsigned type_named(const std::string& name) {
  if (name == "null") return null;
  if (name == "boolean") return boolean;
  if (name == "integer") return integer;
  if (name == "number") return integer | fraction;
  if (name == "string") return json_type::string;
  if (name == "array") return list;
  return name == "object" ? object : any;
}

unsigned type_of(const Json& value) {
  if (value.is_number_float()) {  // 1.0 is an integer, too
    const auto number = value.get<double>();
    return std::floor(number) == number ? fraction | integer : fraction;
  }
  return type_named(value.is_number() ? "integer" : value.type_name());
}

unsigned types_within(const Json& schema, const Json& document, int references) {
  if (schema == false) return 0;
  if (!schema.is_object()) return any;
  unsigned types = any;
  const auto each = [&](const char* name, const auto& take) {
    const auto found = schema.find(name);
    if (found == schema.end() || !found->is_array()) return;
    unsigned one_of = 0;
    for (const Json& one : *found) one_of |= take(one);
    types &= one_of;
  };
  const auto within = [&](const Json& one) { return types_within(one, document, references); };
  if (const auto type = schema.find("type"); type != schema.end() && type->is_string()) {
    types &= type_named(type->get<std::string>());
  }
  each("type", [](const Json& one) { return one.is_string() ? type_named(one) : any; });
  each("enum", type_of);
  each("anyOf", within);
  each("oneOf", within);
  if (const auto value = schema.find("const"); value != schema.end()) types &= type_of(*value);
  if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array()) {
    for (const Json& one : *all) types &= within(one);
  }
  if (const auto path = schema.find("$ref"); path != schema.end()) {
    const Json* const other = references < most_references ? referred(*path, document) : nullptr;
    if (other != nullptr) types &= types_within(*other, document, references + 1);
  }
  return types;
}

bool is_nested(std::string_view text) {
  JsonScanner scanner;
  return std::ranges::all_of(text, [&](char c) { return scanner.feed(c); }) && scanner.done();
}

}  // namespace

const Json* referred(const Json& path, const Json& document) {
  if (!path.is_string() || !path.get_ref<const std::string&>().starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(path.get_ref<const std::string&>().substr(1));
    return document.contains(pointer) ? &document.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

Json with_definitions(const Json& schema, const Json& document) {
  Json own = schema.is_object() ? schema : Json::object();
  for (const char* const shared : {"$defs", "definitions"}) {
    if (document.contains(shared) && !own.contains(shared)) own[shared] = document[shared];
  }
  return own;
}

unsigned types_of(const Json& schema, const Json& document) {
  return types_within(schema, document, 0);
}

ArgumentTypes::ArgumentTypes(const Json& tools) {
  for (const Json& tool : tools) {
    const Json function = tool.value("function", Json::object());
    const Json schema = function.value("parameters", Json());
    if (!schema.is_object()) continue;
    const Json properties = schema.value("properties", Json());
    if (!properties.is_object()) continue;
    for (const auto& [name, property] : properties.items()) {
      types_[{function.value("name", ""), name}] = types_of(property, schema);
    }
  }
}

unsigned ArgumentTypes::of(const std::string& tool, const std::string& argument) const {
  const auto found = types_.find({tool, argument});
  return found != types_.end() ? found->second : any;
}

std::string bare_value(std::string_view text, unsigned types) {
  const auto as_text = [&] { return to_text(std::string(text)); };
  const std::size_t first = text.find_first_not_of(white);
  // A zero would end what is parsed.
  const bool is_bare = first != text.npos && text.find('\0') == text.npos;
  if (types == json_type::string || !is_bare) return as_text();
  std::string value(text.substr(first, text.find_last_not_of(white) + 1 - first));
  const auto type_read = [&]() -> unsigned {
    if (value.front() == '{' || value.front() == '[') {
      return is_nested(value) ? (value.front() == '{' ? object : list) : 0;
    }
    const Json read = Json::parse(value, nullptr, false);
    return read.is_discarded() ? 0 : type_of(read);
  };
  unsigned type = type_read();
  // Some templates leave the spelling to Python.
  if (const auto python =
          type == 0 && value.front() != '\'' ? parse_python_value(value) : std::nullopt) {
    value = *python;
    type = type_read();
  }
  const bool may_be_text = (types & json_type::string) != 0;
  const bool is_other =
      type != json_type::string && (types & type) != 0;  // quotes are a text's own
  return type == 0 || (may_be_text && !is_other) ? as_text() : value;
}

}  // namespace coppice::server
