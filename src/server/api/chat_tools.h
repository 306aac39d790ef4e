// Tools that a chat's request offers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "constraints/language.h"
#include "server/api/fields.h"
#include "server/backend.h"
#include "server/talk/answer_form.h"

namespace coppice::server {

struct ChatTools {
  Json offered = Json::array();    ///< to the template; empty without tools, or with choice "none"
  std::vector<std::string> names;  ///< of these
  // What tool_choice and parallel_tool_calls ask for:
  std::string chosen;        ///< the only tool that may be called; "": any
  bool is_required = false;  ///< a call must come
  bool is_single = false;    ///< one call at most
  bool is_strict = false;    ///< some tool's arguments must keep to its schema
};

/// Reads tools, tool_choice and parallel_tool_calls. Throws ApiError, also where the chat template
/// takes no tools, and where it shows no known form of calls and none is required.
ChatTools read_tools(Fields& fields, const Backend& backend);

/// The constraint that keeps a text to what they ask for; none where a text may be anything. Has
/// the backend build it. Throws ApiError for a strict tool's schema that constraints refuse.
/// `in_reasoning`: the prompt ends within reasoning.
std::optional<constraints::ConstraintSource> tool_constraint(const ChatTools& tools,
                                                             const AnswerForm& form,
                                                             bool in_reasoning, Backend& backend);

}  // namespace coppice::server
