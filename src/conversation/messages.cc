#include "conversation/messages.h"

#include <optional>

#include "base/error.h"
#include "chat/unicode.h"
#include "conversation/answer_text.h"

namespace coppice::conversation {
namespace {

/// `message` with another value of `key`.
chat::Value with(const chat::Value& message, std::string_view key, chat::Value value) {
  std::vector<std::pair<chat::Value, chat::Value>> items = message.as_dict().items;
  for (auto& [name, old] : items) {
    if (name.text().view() == key) old = std::move(value);
  }
  return chat::Value::dict(std::move(items));
}

/// A message with a mark behind its content, or behind the last block of text in that.
struct MarkedMessage {
  chat::Value message;
  chat::Text said;  ///< before the mark
};

/// Nothing: the message has no text.
std::optional<MarkedMessage> marked(const chat::Value& message, const chat::Text& mark,
                                    std::string_view key = "content") {
  if (const chat::Text* const text = text_member(message, key)) {
    chat::Text longer = *text;
    longer.append(mark);
    return MarkedMessage{with(message, key, chat::Value(std::move(longer))), *text};
  }
  const chat::Value* const content = message.as_dict().named(key);
  if (content == nullptr || !content->is_list()) return std::nullopt;
  std::vector<chat::Value> blocks = content->as_list().items;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (!blocks[i].is_dict() || text_member(blocks[i], "text") == nullptr) continue;
    MarkedMessage block = *marked(blocks[i], mark, "text");
    blocks[i] = std::move(block.message);
    return MarkedMessage{with(message, key, chat::Value::list(std::move(blocks))), block.said};
  }
  return std::nullopt;
}

}  // namespace

const chat::Text* text_member(const chat::Value& message, std::string_view name) {
  const chat::Value* value = message.as_dict().named(name);
  return value != nullptr && value->is_string() ? &value->text() : nullptr;
}

std::vector<chat::Value> read_messages(const chat::Value& list, const std::string& where) {
  const std::string form = R"(; give a list like [{"role": "user", "content": "Hello"}])";
  if (!list.is_list() || list.as_list().items.empty()) {
    throw_usage(cat(where, ": no list of messages", form));
  }
  std::vector<chat::Value> messages;
  for (const chat::Value& message : list.as_list().items) {
    const std::size_t number = messages.size() + 1;
    if (!message.is_dict() || text_member(message, "role") == nullptr) {
      throw_usage(cat(where, ": message ", number, " has no role", form));
    }
    // A call of a tool may come without words.
    if (message.as_dict().named("content") == nullptr &&
        message.as_dict().named("tool_calls") == nullptr) {
      throw_usage(cat(where, ": message ", number, " has no content", form));
    }
    const bool answer = text_member(message, "role")->view() == "assistant";
    messages.push_back(answer ? owned_answer(message, cat(where, ": message ", number)) : message);
  }
  return messages;
}

chat::Text raw_text(const std::vector<chat::Value>& messages, const std::string& what) {
  chat::Text out;
  for (const chat::Value& message : messages) {
    const chat::Text* content = text_member(message, "content");
    if (content == nullptr) {
      throw_usage(cat(what, ": a message has no text for its content; give it one"));
    }
    if (!out.empty() && text_member(message, "role")->view() != "assistant") out.append("\n");
    out.append(*content);
  }
  return out;
}

chat::Text text_to_continue(const chat::ModelTemplate* from, std::vector<chat::Value> messages,
                            const Names& names, const std::string& what) {
  const std::string& role = text_member(messages.back(), "role")->bytes();
  if (role != "assistant") {
    throw_usage(cat(what, ": the last message is of the role ", quote(role),
                    "; end the list with an assistant's, or leave the option out"));
  }
  if (from == nullptr) return raw_text(messages, what);
  // Where the message ends is known by a mark that the template takes for its last word.
  const chat::Text mark("COPPICE_CONTINUES_HERE ", true);
  const std::optional<MarkedMessage> begun = marked(messages.back(), mark);
  if (!begun) throw_usage(cat(what, ": the last message has no text; give it a content"));
  messages.back() = begun->message;
  const chat::Text whole = from->render(chat::Value::list(messages), false, names);
  const std::string stripped_mark = mark.bytes().substr(0, mark.size() - 1);
  const std::size_t end = whole.view().rfind(stripped_mark);
  const chat::Text words = chat::stripped(begun->said, nullptr, true, true);
  if (end == std::string::npos || whole.view().find(words.view()) == std::string::npos) {
    throw_failure(cat(what, ": the chat template does not write the last message as it is; ",
                      "leave the option out, or use raw text"));
  }
  const chat::Text before = whole.substr(0, end);
  const bool keeps_spaces = whole.view().substr(end).starts_with(mark.view());
  return keeps_spaces ? before : chat::stripped(before, nullptr, false, true);
}

}  // namespace coppice::conversation
