#include "server/api/chat_tools.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "server/api/api_error.h"
#include "server/talk/tool_grammar.h"

namespace coppice::server {
namespace {

using constraints::ConstraintSource;

void read_tool(const std::string& path, const Json& tool, ChatTools& tools) {
  if (!tool.is_object()) throw bad_field(path, "give an object");
  Fields fields(tool, path + ".");
  if (fields.text("type").value_or("") != "function") {
    throw bad_field(fields.path("type"), "this server runs no tools of its own; use \"function\"");
  }
  const Json* const function = fields.object("function");
  if (function == nullptr) throw bad_field(fields.path("function"), "it is missing");
  Fields own(*function, path + ".function.");
  const std::string name = own.text("name").value_or("");
  if (name.empty()) throw bad_field(own.path("name"), "it is missing");
  if (std::find(tools.names.begin(), tools.names.end(), name) != tools.names.end()) {
    throw bad_field(own.path("name"), cat(quote(name), " is there twice"));
  }
  own.text("description");
  own.object("parameters");
  tools.is_strict = own.boolean("strict").value_or(false) || tools.is_strict;
  own.refuse_others();
  fields.refuse_others();
  tools.names.push_back(name);
  tools.offered.push_back(tool);
}

// "auto", "none", "required", or {"type": "function", "function": {"name": ...}}.
void read_choice(const Json& choice, ChatTools& tools) {
  if (choice == "auto") return;
  if (choice == "required") {
    tools.is_required = true;
    return;
  }
  if (!choice.is_object()) {
    throw bad_field("tool_choice", "use auto, none, required, or an object that names a function");
  }
  Fields fields(choice, "tool_choice.");
  if (fields.text("type").value_or("") != "function") {
    throw bad_field(fields.path("type"), "use \"function\"");
  }
  const Json* const function = fields.object("function");
  if (function == nullptr) throw bad_field(fields.path("function"), "it is missing");
  Fields own(*function, "tool_choice.function.");
  tools.chosen = own.text("name").value_or("");
  if (std::find(tools.names.begin(), tools.names.end(), tools.chosen) == tools.names.end()) {
    throw bad_field(own.path("name"), cat(quote(tools.chosen), " is none of the tools"));
  }
  own.refuse_others();
  fields.refuse_others();
  tools.is_required = tools.is_single = true;
}

}  // namespace

ChatTools read_tools(Fields& fields, const Backend& backend) {
  ChatTools tools;
  const Json* const list = fields.list("tools");
  const Json* const choice = fields.find("tool_choice");
  tools.is_single = !fields.boolean("parallel_tool_calls").value_or(true);
  if (list == nullptr || list->empty()) {
    const bool asks = choice != nullptr && *choice != "none" && *choice != "auto";
    if (asks) throw bad_field("tool_choice", "there are no tools to choose from; give tools");
    return {};
  }
  if (!backend.template_reads("tools")) {
    throw ApiError(400, "tools: this model's chat template takes no tools", "tools",
                   "unsupported_parameter");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    read_tool(cat("tools[", i, ']'), (*list)[i], tools);
  }
  if (choice != nullptr && *choice == "none") return {};
  if (choice != nullptr) read_choice(*choice, tools);
  // Calls among words would go unseen.
  if (!tools.is_required && answer_form(backend.facts().chat_template).tools == ToolForm::none) {
    throw ApiError(400,
                   "tools: the form in which this model calls tools is not known; have one called "
                   "with tool_choice \"required\" or a function's name",
                   "tools", "unsupported_parameter");
  }
  return tools;
}

std::optional<ConstraintSource> tool_constraint(const ChatTools& tools, const AnswerForm& form,
                                                bool in_reasoning, Backend& backend) {
  if (tools.offered.empty() || !(tools.is_required || tools.is_single || tools.is_strict)) {
    return std::nullopt;
  }
  ToolGrammar wanted{form, tools.offered, tools.is_required, tools.is_single, in_reasoning};
  if (!tools.chosen.empty()) {
    wanted.tools = Json::array();
    for (const Json& tool : tools.offered) {
      if (tool["function"]["name"] == tools.chosen) wanted.tools.push_back(tool);
    }
  }
  const auto built = [&] {
    ConstraintSource source{ConstraintSource::Kind::grammar, {tool_grammar(wanted)}};
    backend.constraint(source);
    return source;
  };
  try {
    return built();
  } catch (const Error& error) {
    if (tools.is_strict) throw bad_field("tools", error.what());
  }
  wanted.takes_any_arguments = true;
  return built();
}

}  // namespace coppice::server
