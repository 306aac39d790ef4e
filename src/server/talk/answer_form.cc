#include "server/talk/answer_form.h"

#include "server/talk/words.h"

namespace coppice::server {

AnswerForm answer_form(std::string_view template_source) {
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  AnswerForm form;
  if (has("[TOOL_CALLS]")) {
    form.tools = has("[ARGS]") ? ToolForm::mistral_args : ToolForm::mistral_list;
  } else if (has("｜DSML｜")) {
    form.tools = has("tool_calls>") ? ToolForm::dsml_tools : ToolForm::dsml_functions;
  } else if (has("<minimax:tool_call>")) {
    form.tools = ToolForm::minimax_xml;
  } else if (has("<seed:tool_call>")) {
    form.tools = ToolForm::seed_xml;
  } else if (has("<tool_call>")) {
    // Some families have tags of their own between these.
    if (has("<arg_key>")) {
      form.tools = ToolForm::glm_xml;
    } else if (has("<function=")) {
      form.tools = has("<parameter=") ? ToolForm::qwen_xml : ToolForm::none;
    } else if (has("arguments") && !has("<invoke ")) {
      form.tools = ToolForm::hermes;
    }
  } else if (has("func_name1(")) {
    form.tools = ToolForm::pythonic;
  } else if (has("<|start_header_id|>") && has("\"parameters\": ")) {
    form.tools = ToolForm::llama;
  }
  if (has("</think>")) {
    form.reasoning = {"<think>", "</think>"};
  } else if (has("[/THINK]")) {
    form.reasoning = {"[THINK]", "[/THINK]"};
  }
  return form;
}

bool begins_with_reasoning(const AnswerForm& form, std::string_view prompt) {
  if (form.reasoning.open.empty()) return false;
  const std::size_t last = prompt.find_last_not_of(white);
  return last != std::string_view::npos &&
         prompt.substr(0, last + 1).ends_with(form.reasoning.open);
}

}  // namespace coppice::server
