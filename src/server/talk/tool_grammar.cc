#include "server/talk/tool_grammar.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace coppice::server {
namespace {

using Json = nlohmann::ordered_json;

// GBNF's quotes.
std::string literal(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      all += '\\';
      all += c;
    } else if (byte < 0x20) {
      all += "\\x";
      all += digits[byte / 16];
      all += digits[byte % 16];
    } else {
      all += c;
    }
  }
  return all + "\"";
}

std::string token(std::string_view text) { return "%token(" + literal(text) + ")"; }

std::string text_without(std::string_view text) { return "%not(.* " + literal(text) + " .*)"; }

std::string alternatives(const std::vector<std::string>& all) {
  std::string joined;
  for (const std::string& one : all) joined += (joined.empty() ? "" : " | ") + one;
  return "(" + joined + ")";
}

// `one`, or several with something between.
std::string calls(const std::string& one, const std::string& between, bool is_single) {
  return is_single ? one : one + " (" + between + " " + one + ")*";
}

// What stands before the answer.
std::string reasoning(const AnswerForm& form, bool in_reasoning) {
  const auto& [open, close] = form.reasoning;
  if (close.empty()) return "";
  const std::string rest = text_without(close) + " " + token(close);
  const std::string blank = " [ \\n]{0,4} ";
  return in_reasoning ? rest + blank : "(" + token(open) + " " + rest + blank + ")? ";
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
        const std::string one = token("<tool_call>") + " \"\\n\" " + any_object("arguments") +
                                " \"\\n\" " + token("</tool_call>");
        return marked("<tool_call>", one, "\"\\n\"");
      }
      case ToolForm::mistral_args:
        return marked("[TOOL_CALLS]", any_named(), "");
      case ToolForm::mistral_list: {
        const std::string one = any_object("arguments");
        const std::string list = token("[TOOL_CALLS]") + " \" \"? \"[\" " +
                                 calls(one, "\", \"", wanted_.is_single) + " \"]\"";
        if (!is_free) return list;
        return text_without("[TOOL_CALLS]") + " (" + list + ")?";
      }
      case ToolForm::llama: {
        const std::string call = any_object("parameters");
        if (!is_free) return call;
        // What begins like a call must be one.
        const std::string space = "[ \\t\\r\\n]*";
        const std::string begun = space + " \"{\" " + space + " \"\\\"name\\\"\" " + space +
                                  " \":\" " + space + " " + names_in_quotes() + " .*";
        const std::string mark = literal("<|python_tag|>");
        return "(" + call + " | " + token("<|python_tag|>") + " " + call + " | %not(" + begun +
               " | .* " + mark + " .*))";
      }
      case ToolForm::pythonic: {
        const std::string list =
            "\"[\" " + calls(any_pythonic(), "\", \"", wanted_.is_single) + " \"]\"";
        if (!is_free) return list;
        std::vector<std::string> names;
        for (const Json& function : functions_) names.push_back(literal(name_of(function)));
        const std::string begun =
            "[ \\t\\r\\n]* \"[\" [ \\t\\r\\n]* " + alternatives(names) + " \"(\" .*";
        const std::string mark = literal("<|python_tag|>");
        return "(" + list + " | " + token("<|python_tag|>") + " " + list + " | %not(" + begun +
               " | .* " + mark + " .*))";
      }
      case ToolForm::none:
        break;
    }
    return {};
  }

  // Calls that each begin with a mark, perhaps behind text.
  std::string marked(std::string_view mark, const std::string& one,
                     const std::string& between) const {
    if (wanted_.is_required) return calls(one, between, wanted_.is_single);
    const std::string free = text_without(mark);
    if (wanted_.is_single) return free + " (" + one + " [ \\n]{0,4})?";
    return free + " (" + one + " " + free + ")*";
  }

  static std::string name_of(const Json& function) { return function.value("name", ""); }
  static std::string quoted_name(const Json& function) { return Json(name_of(function)).dump(); }

  std::string names_in_quotes() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) all.push_back(literal(quoted_name(function)));
    return alternatives(all);
  }

  // {"name": ..., "arguments": ...}
  std::string any_object(const std::string& arguments) const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      const std::string head = "{\"name\": " + quoted_name(function) + ", \"" + arguments + "\": ";
      all.push_back(literal(head) + " %json " + schema_of(function).dump() + " \"}\"");
    }
    return alternatives(all);
  }

  // [TOOL_CALLS]name[ARGS]{...}
  std::string any_named() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      all.push_back(literal(name_of(function)) + " " + token("[ARGS]") + " %json " +
                    schema_of(function).dump());
    }
    return token("[TOOL_CALLS]") + " " + alternatives(all);
  }

  // name(a=1, b="text"): required arguments, then others, each in the schema's order.
  std::string any_pythonic() const {
    std::vector<std::string> all;
    for (const Json& function : functions_) {
      all.push_back(literal(name_of(function)) + " \"(\" " + pythonic_arguments(function) +
                    " \")\"");
    }
    return alternatives(all);
  }

  std::string pythonic_arguments(const Json& function) const {
    const Json schema = schema_of(function);
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    std::vector<std::string> needed, others;
    for (const auto& [name, property] : properties.items()) {
      Json own = property.is_object() ? property : Json::object();
      for (const char* shared : {"$defs", "definitions"}) {
        if (schema.contains(shared) && !own.contains(shared)) own[shared] = schema[shared];
      }
      const bool is_needed = std::ranges::find(required, Json(name)) != required.end();
      (is_needed ? needed : others).push_back(literal(name + "=") + " %json " + own.dump());
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
    return all.empty() ? "\"\"" : alternatives(all) + "?";
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
