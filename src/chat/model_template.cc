#include "chat/model_template.h"

#include <ctime>

namespace coppice::chat {

Value message(const std::string& role, const std::string& content) {
  return Value::dict({{Value(std::string("role")), Value(Text(role, true))},
                      {Value(std::string("content")), Value(Text(content, true))}});
}

ModelTemplate::ModelTemplate(std::string_view source, const std::string& where,
                             const std::vector<std::pair<std::string, std::string>>& tokens)
    : template_(ChatTemplate::parse(source, where)) {
  for (const auto& [name, text] : tokens) special_tokens_.emplace_back(Value(name), Value(text));
}

Text ModelTemplate::render(const Value& messages, bool add_generation_prompt,
                           const std::vector<std::pair<std::string, Value>>& more) const {
  std::vector<std::pair<Value, Value>> context = special_tokens_;
  const auto add = [&](const std::string& name, const Value& value) {
    context.emplace_back(Value(name), value);
  };
  for (const auto& [name, value] : more) add(name, value);  // the first of a name counts
  add("messages", messages);
  add("add_generation_prompt", Value(add_generation_prompt));
  add("tools", Value());
  add("documents", Value());
  return template_.render(Value::dict(std::move(context)), std::time(nullptr));
}

}  // namespace coppice::chat
