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
