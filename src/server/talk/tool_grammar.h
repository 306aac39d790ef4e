// A grammar that keeps a model's tool calls to their form and arguments to their schemas.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/talk/answer_form.h"

namespace coppice::server {

struct ToolGrammar {
  AnswerForm form;
  /// As in a chat's request: [{"type": "function", "function": {"name", "parameters"}}].
  nlohmann::ordered_json tools;
  /// At least one call must come. Otherwise the model may also answer in words.
  bool is_required = false;
  /// One call at most.
  bool is_single = false;
  /// The prompt ended within reasoning (begins_with_reasoning()).
  bool in_reasoning = false;
  /// Arguments may be any JSON objects: for schemas that constraints refuse.
  bool takes_any_arguments = false;
};

/// In the GBNF of src/constraints, with its additions; empty if no form of calls is known. Throws
/// Error(usage) for a schema that a form with tags cannot be held to. A call comes in the
/// template's own spelling, so that most of it is forced. Reasoning may come first.
///
/// AnswerParser reads what the grammar admits, and may hand arguments over as they come.
/// A schema that lists properties and says nothing of others admits no others. Llama's form takes
/// one call at most.
std::string tool_grammar(const ToolGrammar& wanted);

/// A grammar of JSON of a schema, behind reasoning if the model writes some.
std::string json_grammar(const AnswerForm& form, bool in_reasoning, const std::string& schema);

}  // namespace coppice::server
