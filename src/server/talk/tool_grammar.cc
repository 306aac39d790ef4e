#include "server/talk/tool_grammar.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "server/talk/argument_types.h"
#include "server/talk/gbnf_text.h"
#include "server/talk/xml_grammar.h"

namespace coppice::server {
namespace {

using Json = nlohmann::ordered_json;

// `one`, or several with something between.
std::string calls(const std::string& one, const std::string& between, bool is_single) {
  return is_single ? one : one + " (" + between + " " + one + ")*";
}

// What stands before the answer.
std::string reasoning(const AnswerForm& form, bool in_reasoning) {
  const auto& [open, close] = form.reasoning;
  if (close.empty()) return "";
  const std::string rest = gbnf_without(close) + " " + gbnf_token(close);
  const std::string blank = " [ \\n]{0,4} ";
  return in_reasoning ? rest + blank : "(" + gbnf_token(open) + " " + rest + blank + ")? ";
}

class Writer {
 public:
  explicit Writer(const ToolGrammar& wanted) : wanted_(wanted) {
    for (const Json& tool : wanted.tools) functions_.push_back(tool.value("function", Json()));
  }

  std::string grammar() const {
    const std::string body = root();
    if (body.empty() || functions_.empty()) return {};
    return "root ::= " + reasoning(wanted_.form, wanted_.in_reasoning) + body + "\n";
  }

 private:
  std::string root() const {
    const bool is_free = !wanted_.is_required;
    switch (wanted_.form.tools) {
      case ToolForm::hermes: {
        const std::string one = gbnf_token("<tool_call>") + " \"\\n\" " + any_object("arguments") +
                                " \"\\n\" " + gbnf_token("</tool_call>");
        return marked("<tool_call>", one, "\"\\n\"");
      }
      case ToolForm::mistral_args:
        return marked("[TOOL_CALLS]", any_named(), "");
      case ToolForm::mistral_list: {
        const std::string one = any_object("arguments");
        const std::string list = gbnf_token("[TOOL_CALLS]") + " \" \"? \"[\" " +
                                 calls(one, "\", \"", wanted_.is_single) + " \"]\"";
        if (!is_free) return list;
        return gbnf_without("[TOOL_CALLS]") + " (" + list + ")?";
      }
      case ToolForm::llama: {
        const std::string call = any_object("parameters");
        if (!is_free) return call;
        // What begins like a call must be one.
        const std::string space = "[ \\t\\r\\n]*";
        const std::string begun = space + " \"{\" " + space + " \"\\\"name\\\"\" " + space +
                                  " \":\" " + space + " " + names_in_quotes() + " .*";
        const std::string mark = gbnf_literal("<|python_tag|>");
        return "(" + call + " | " + gbnf_token("<|python_tag|>") + " " + call + " | %not(" + begun +
               " | .* " + mark + " .*))";
      }
      case ToolForm::pythonic: {
        const std::string list =
            "\"[\" " + calls(any_pythonic(), "\", \"", wanted_.is_single) + " \"]\"";
        if (!is_free) return list;
        std::vector<std::string> names;
        for (const Json& function : functions_) names.push_back(gbnf_literal(name_of(function)));
        const std::string begun =
            "[ \\t\\r\\n]* \"[\" [ \\t\\r\\n]* " + gbnf_one_of(names) + " \"(\" .*";
        const std::string mark = gbnf_literal("<|python_tag|>");
        return "(" + list + " | " + gbnf_token("<|python_tag|>") + " " + list + " | %not(" + begun +
               " | .* " + mark + " .*))";
      }
      default:
        break;
    }
    const XmlTags* const tags = xml_tags(wanted_.form.tools);
    return tags != nullptr ? tagged(*tags) : "";
  }

  // A block for each call, or one for all where calls have tags of their own to end with.
  std::string tagged(const XmlTags& tags) const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      all.push_back(xml_call_grammar(tags, function, wanted_.takes_any_arguments));
    }
    const std::string call = gbnf_one_of(all);
    if (tags.close.empty()) {
      return marked(tags.open, gbnf_token(tags.open) + " " + call, xml_space(tags));
    }
    const std::string line = " " + xml_space(tags) + " ";
    const std::string block = gbnf_token(tags.open) + line +
                              (tags.has_one_call ? call : calls(call, line, wanted_.is_single)) +
                              line + gbnf_token(tags.close);
    return marked(tags.open, block, xml_space(tags));
  }

  // Calls that each begin with a mark, perhaps behind text.
  std::string marked(std::string_view mark, const std::string& one,
                     const std::string& between) const {
    if (wanted_.is_required) return calls(one, between, wanted_.is_single);
    const std::string free = gbnf_without(mark);
    if (wanted_.is_single) return free + " (" + one + " [ \\n]{0,4})?";
    return free + " (" + one + " " + free + ")*";
  }

  static std::string name_of(const Json& function) { return function.value("name", ""); }
  static std::string quoted_name(const Json& function) { return Json(name_of(function)).dump(); }

  std::string names_in_quotes() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) all.push_back(gbnf_literal(quoted_name(function)));
    return gbnf_one_of(all);
  }

  // {"name": ..., "arguments": ...}
  std::string any_object(const std::string& arguments) const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      const std::string head = "{\"name\": " + quoted_name(function) + ", \"" + arguments + "\": ";
      all.push_back(gbnf_literal(head) + " %json " + schema_of(function).dump() + " \"}\"");
    }
    return gbnf_one_of(all);
  }

  // [TOOL_CALLS]name[ARGS]{...}
  std::string any_named() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      all.push_back(gbnf_literal(name_of(function)) + " " + gbnf_token("[ARGS]") + " %json " +
                    schema_of(function).dump());
    }
    return gbnf_token("[TOOL_CALLS]") + " " + gbnf_one_of(all);
  }

  // name(a=1, b="text"): required arguments, then others, each in the schema's order.
  std::string any_pythonic() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      all.push_back(gbnf_literal(name_of(function)) + " \"(\" " + pythonic_arguments(function) +
                    " \")\"");
    }
    return gbnf_one_of(all);
  }

  std::string pythonic_arguments(const Json& function) const {
    const Json schema = schema_of(function);
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    std::vector<std::string> needed, others;
    for (const auto& [name, property] : properties.items()) {
      const Json own = with_definitions(property, schema);
      const bool is_needed = std::ranges::find(required, Json(name)) != required.end();
      (is_needed ? needed : others).push_back(gbnf_literal(name + "=") + " %json " + own.dump());
    }
    std::string text;
    for (const std::string& one : needed) text += (text.empty() ? "" : " \", \" ") + one;
    // Without required ones, the first of the others has no comma before it.
    if (!needed.empty()) {
      for (const std::string& one : others) text += " (\", \" " + one + ")?";
      return text;
    }
    std::vector<std::string> all;
    for (std::size_t first = 0; first < others.size(); ++first) {
      std::string some = others[first];
      for (std::size_t i = first + 1; i < others.size(); ++i)
        some += " (\", \" " + others[i] + ")?";
      all.push_back(some);
    }
    return all.empty() ? "\"\"" : gbnf_one_of(all) + "?";
  }

  Json schema_of(const Json& function) const {
    Json schema = function.value("parameters", Json());
    if (wanted_.takes_any_arguments) return {{"type", "object"}};
    if (!schema.is_object()) return {{"type", "object"}, {"additionalProperties", false}};
    if (!schema.contains("type")) schema["type"] = "object";
    const auto has = [&](const char* name) { return schema.contains(name); };
    if (has("properties") &&
        std::ranges::none_of(
            std::initializer_list<const char*>{
                "additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf",
                "if", "not", "dependentSchemas", "unevaluatedProperties", "minProperties"},
            has)) {
      schema["additionalProperties"] = false;
    }
    return schema;
  }

  const ToolGrammar& wanted_;
  std::vector<Json> functions_;
};

}  // namespace

std::string tool_grammar(const ToolGrammar& wanted) { return Writer(wanted).grammar(); }

std::string json_grammar(const AnswerForm& form, bool in_reasoning, const std::string& schema) {
  return "root ::= " + reasoning(form, in_reasoning) + "%json " + schema + "\n";
}

}  // namespace coppice::server
