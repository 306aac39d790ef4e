// How a model writes reasoning and tool calls, as its chat template shows.
#pragma once

#include <string_view>

namespace coppice::server {

enum class ToolForm {
  none,          ///< the template shows no form that is known
  hermes,        ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number
  llama,         ///< {"name": ..., "parameters": {...}}, perhaps behind <|python_tag|>
  pythonic,      ///< [name(argument=1), other(argument="text")]
  mistral_list,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
  mistral_args,  ///< [TOOL_CALLS]name[ARGS]{...}, any number (tokenizer versions 11 and later)
  // Tags around each argument (xml_call.h):
  qwen_xml,     ///< <tool_call><function=name><parameter=key>\nvalue\n</parameter></function>...
  seed_xml,     ///< the same in <seed:tool_call>, without the line ends
  glm_xml,      ///< <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
  minimax_xml,  ///< <minimax:tool_call><invoke name="name"><parameter name="key">value...
  dsml_functions,  ///< <｜DSML｜function_calls> with such tags, which say what is text
  dsml_tools,      ///< the same in <｜DSML｜tool_calls>
};

/// Empty if the model does not reason in a form that is known.
struct ReasoningTags {
  std::string_view open, close;
  bool operator==(const ReasoningTags&) const = default;
};

struct AnswerForm {
  ToolForm tools = ToolForm::none;
  ReasoningTags reasoning;
};

/// Reads the form from the Jinja source of a chat template.
AnswerForm answer_form(std::string_view template_source);

/// Whether a rendered prompt ends within reasoning, so that the answer begins with some.
bool begins_with_reasoning(const AnswerForm& form, std::string_view prompt);

}  // namespace coppice::server
