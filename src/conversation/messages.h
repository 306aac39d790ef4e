// Messages of a conversation, checked, and the text that a template makes of them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/model_template.h"
#include "chat/value.h"

namespace coppice::conversation {

/// Names that a template is told beside the messages.
using Names = std::vector<std::pair<std::string, chat::Value>>;

/// Null: the message has no such member, or it is no text.
const chat::Text* text_member(const chat::Value& message, std::string_view name);

/// The messages of a list that was parsed as foreign. Added tokens that an assistant's message
/// spells are tokens, as in transformers; in all other messages they are text. Throws Error(usage),
/// which names `where`.
std::vector<chat::Value> read_messages(const chat::Value& list, const std::string& where);

/// What the model shall go on from to continue the last message, which must be an assistant's, as
/// continue_final_message of transformers. Throws Error(usage) if it is not, and Error(failure) if
/// the template does not write that message as it is; both begin with `what`. Null `from`: the
/// messages are raw text, which raw_text() joins.
chat::Text text_to_continue(const chat::ModelTemplate* from, std::vector<chat::Value> messages,
                            const Names& names, const std::string& what);

/// What was said, a line for each turn. Throws Error(usage), which begins with `what`.
chat::Text raw_text(const std::vector<chat::Value>& messages, const std::string& what);

}  // namespace coppice::conversation
