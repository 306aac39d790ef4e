#include "server/talk/xml_grammar.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/error.h"
#include "server/talk/gbnf_text.h"

namespace coppice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int longest_chain = 16;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_remark(std::string_view name) {
  return is_one_of(name, {"title", "description", "default", "examples", "deprecated", "readOnly",
                          "writeOnly", "$comment", "nullable"});
}

class XmlCallWriter {
 public:
  XmlCallWriter(const XmlTags& tags, const Json& function, bool takes_any)
      : tags_(tags),
        name_(function.value("name", "")),
        schema_(function.value("parameters", Json())),
        takes_any_(takes_any) {}

  std::string call() const {
    // What ends a name without a mark of its own.
    return gbnf_literal(std::string(tags_.call_open) + name_ + std::string(tags_.name_end)) + " " +
           xml_space(tags_) + " " + arguments() + gbnf_token(tags_.call_close);
  }

 private:
  std::string arguments() const {
    if (takes_any_) return any_arguments(Json(true));
    if (!schema_.is_object()) return "";
    const Json properties = schema_.value("properties", Json::object());
    std::vector<std::string> needed;
    for (const Json& one : schema_.value("required", Json::array())) {
      if (one.is_string()) needed.push_back(one);
    }
    for (const auto& [keyword, value] : schema_.items()) {
      if (!is_remark(keyword) &&
          !is_one_of(keyword, {"type", "properties", "required", "additionalProperties", "$defs",
                               "definitions", "$schema", "$id", "strict"})) {
        throw_usage(cat("parameters of ", quote(name_), ": ", quote(keyword),
                        " cannot be held where calls are written with tags; leave it out"));
      }
    }
    std::string all;
    for (const auto& [key, property] : properties.items()) {
      const std::string one = argument(gbnf_literal(key), property, key);
      const bool is_needed = std::ranges::find(needed, key) != needed.end();
      all += is_needed ? one + " " : "(" + one + ")? ";
    }
    for (const std::string& key : needed) {
      if (!properties.contains(key)) all += argument(gbnf_literal(key), Json(true), key) + " ";
    }
    const Json others = schema_.value("additionalProperties", Json(true));
    if (all.empty() && others != false) return any_arguments(others);
    return all;
  }

  std::string any_arguments(const Json& schema) const {
    return "(" + argument("[^<>\"\\x00-\\x1f]{1,64}", schema, "additionalProperties") + ")* ";
  }

  // `key` as GBNF.
  std::string argument(const std::string& key, const Json& schema, const std::string& name) const {
    const std::string space = xml_space(tags_);
    std::string all = gbnf_token(tags_.key_open) + " " + key + " ";
    if (tags_.tells_text) {
      all += gbnf_literal(tags_.key_end) + " " + told_value(schema, name) + " ";
    } else {
      all += gbnf_token(tags_.key_end) + " ";
      if (!tags_.value_open.empty()) all += space + " " + gbnf_token(tags_.value_open) + " ";
      const std::string line = tags_.has_lines ? "\"\\n\" " : "";
      all += line + value(schema, name, 0) + " " + line;
    }
    return all + gbnf_token(tags_.value_end) + " " + space;
  }

  // true">text or false">JSON
  std::string told_value(const Json& schema, const std::string& name) const {
    const unsigned types = types_of(schema, schema_);
    std::vector<std::string> ways;
    if ((types & json_type::string) != 0) {
      ways.push_back("\"true\\\">\" " + value(schema, name, json_type::string));
    }
    if ((types & ~json_type::string) != 0) {
      ways.push_back("\"false\\\">\" " + value(schema, name, json_type::any & ~json_type::string));
    }
    return gbnf_one_of(ways);
  }

  // A value within its tags, of the types `only`; 0: of any.
  std::string value(const Json& given, const std::string& name, unsigned only) const {
    const Json& schema = resolved(given);
    unsigned types = types_of(schema, schema_);
    if (only != 0) types &= only;
    if ((types & json_type::string) == 0) return json_value(given, types);
    std::vector<std::string> choices;
    for (const Json& one : choices_of(schema)) {
      if (one.is_string() &&
          one.get_ref<const std::string&>().find(tags_.value_end) == std::string::npos) {
        choices.push_back(gbnf_literal(one.get_ref<const std::string&>()));
      } else if (!one.is_string() && only != json_type::string) {
        choices.push_back(gbnf_literal(one.dump()));
      }
    }
    if (!choices.empty()) return gbnf_one_of(choices);
    if (!is_plain(schema)) {
      throw_usage(cat("parameters of ", quote(name_), ": ", quote(name),
                      " is written without quotes, and may be held to its type, \"enum\" and "
                      "\"const\" alone; leave other keywords out"));
    }
    return gbnf_without(tags_.value_end);
  }

  // Types that the schema admits and the text rules out are taken away.
  std::string json_value(const Json& given, unsigned types) const {
    Json own = with_definitions(given, schema_);
    if ((types_of(given, schema_) & json_type::string) != 0) {
      Json names = Json::array();
      const auto name = [&](unsigned type, const char* text) {
        if ((types & type) == type) names.push_back(text);
      };
      name(json_type::null, "null");
      name(json_type::boolean, "boolean");
      name(json_type::integer, "integer");
      name(json_type::integer | json_type::fraction, "number");
      name(json_type::list, "array");
      name(json_type::object, "object");
      own = is_plain(resolved(given)) ? Json{{"type", names}} : own;
    }
    return "%json " + own.dump();
  }

  const Json& resolved(const Json& given) const {
    const Json* schema = &given;
    for (int i = 0; i < longest_chain && schema->is_object() && schema->contains("$ref"); ++i) {
      const Json* const other = referred(schema->at("$ref"), schema_);
      if (other == nullptr) break;
      schema = other;
    }
    return *schema;
  }

  // The values that the schema lists; empty: it lists none.
  static Json choices_of(const Json& schema) {
    Json listed = Json::array();
    if (!schema.is_object()) return listed;
    if (const auto one = schema.find("const"); one != schema.end()) {
      listed.push_back(*one);
    } else if (const auto some = schema.find("enum"); some != schema.end() && some->is_array()) {
      listed = *some;
    }
    return listed;
  }

  // Asks for nothing but a type.
  bool is_plain(const Json& schema) const {
    if (!schema.is_object()) return schema == true;
    return std::ranges::all_of(schema.items(), [&](const auto& member) {
      if (member.key() == "anyOf" || member.key() == "oneOf") {
        return std::ranges::all_of(member.value(), [&](const Json& one) { return is_plain(one); });
      }
      return member.key() == "type" || is_remark(member.key());
    });
  }

  const XmlTags& tags_;
  const std::string name_;
  const Json schema_;
  const bool takes_any_;
};

}  // namespace

std::string xml_space(const XmlTags& tags) {
  // Templates with this mark differ in it.
  return tags.name_end.empty() ? "\"\\n\"?" : "\"\\n\"";
}

std::string xml_call_grammar(const XmlTags& tags, const Json& function, bool takes_any_arguments) {
  return XmlCallWriter(tags, function, takes_any_arguments).call();
}

}  // namespace coppice::server
