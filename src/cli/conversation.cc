#include "cli/conversation.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/json.h"
#include "cli/constraint_options.h"
#include "conversation/messages.h"
#include "conversation/recommended.h"
#include "models/config.h"
#include "models/settings/template_settings.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

// NAME=VALUE, with VALUE as JSON if it is, else as text.
std::pair<std::string, chat::Value> template_value(const std::string& option) {
  const std::size_t sign = option.find('=');
  if (sign == std::string::npos || sign == 0) {
    throw_usage(cat("--template-value ", quote(option), ": use NAME=VALUE"));
  }
  const std::string text = option.substr(sign + 1);
  try {
    return {option.substr(0, sign), chat::parse_json(text, "value", true)};
  } catch (const Error&) {
    return {option.substr(0, sign), chat::Value(chat::Text(text, true))};
  }
}

}  // namespace

po::options_description conversation_options() {
  po::options_description d("Conversation");
  d.add_options()("system", po::value<std::string>()->value_name("TEXT"),
                  "a system message before the first one")(
      "no-template", "raw text instead of the target's chat template")(
      "template-name", po::value<std::string>()->value_name("NAME"),
      "which of the folder's chat templates; if not given, the default one")(
      "template-value",
      po::value<std::vector<std::string>>()->composing()->value_name("NAME=VALUE"),
      "a name for the template, such as enable_thinking=false (may be given several times)");
  return d;
}

Conversation::Conversation(const fs::path& target, const po::variables_map& values) {
  const auto text = [&](const char* name) {
    return values.count(name) != 0 ? values[name].as<std::string>() : std::string();
  };
  system_ = text("system");
  if (!is_valid_utf8(system_)) throw_usage("--system: not valid UTF-8; convert the text to UTF-8");
  if (values.count("template-value") != 0) {
    for (const std::string& option : values["template-value"].as<std::vector<std::string>>()) {
      template_values_.push_back(template_value(option));
    }
  }
  static_cast<void>(read_config(target));  // says what it is if it is no model
  if (values.count("no-template") == 0) {
    const TemplateSettings found = read_template_settings(target, text("template-name"));
    template_.emplace(found.source, found.where, found.special_tokens);
  }
  clear();
}

std::uint64_t Conversation::bytes() const {
  constexpr std::uint64_t least = 64;  // of memory, even if nothing is said
  std::uint64_t bytes = 0;
  for (const chat::Value& message : messages_) {
    bytes += least;
    for (const char* name : {"role", "content"}) {
      const chat::Text* const text = conversation::text_member(message, name);
      if (text != nullptr) bytes += text->size();
    }
  }
  return bytes;
}

void Conversation::clear() {
  messages_.clear();
  if (!system_.empty()) add("system", system_);
}

void Conversation::add(const std::string& role, const std::string& content) {
  messages_.push_back(chat::message(role, content));
}

chat::Value Conversation::remove_last() {
  chat::Value last = std::move(messages_.back());
  messages_.pop_back();
  return last;
}

void Conversation::add_json(std::string_view json, const std::string& where) {
  add_list(chat::parse_json(json, where, true), where);
}

void Conversation::add_list(const chat::Value& list, const std::string& where) {
  for (chat::Value& message : conversation::read_messages(list, where)) {
    if (!system_.empty() && conversation::text_member(message, "role")->view() == "system") {
      throw_usage(cat(where, ": it has a system message; leave out --system, or that message"));
    }
    messages_.push_back(std::move(message));
  }
}

std::string Conversation::to_json() const {
  std::vector<chat::Value> said(messages_.begin() + (system_.empty() ? 0 : 1), messages_.end());
  chat::JsonStyle style;
  style.indent = chat::Text("  ");
  style.item_separator = chat::Text(",");
  return chat::to_json(chat::Value::list(std::move(said)), style).bytes() + "\n";
}

chat::Text Conversation::text() const {
  if (!template_) return conversation::raw_text(messages_, "--no-template");
  return template_->render(chat::Value::list(messages_), true, template_values_);
}

chat::Text Conversation::text_to_continue() const {
  return conversation::text_to_continue(template_ ? &*template_ : nullptr, messages_,
                                        template_values_, "--continue-message");
}

std::vector<std::string> take_recommended(const fs::path& target, const po::variables_map& values,
                                          GenerateOptions& request,
                                          const GenerationSettings* settings) {
  // A constrained text ends where it is whole: what is recommended for others may cut it short.
  const bool constrained = asks_for_constraint(values);
  const auto given = [&](const char* option) {
    if (constrained && std::string_view(option) == "stop") return true;
    return values.count(option) != 0 && !values[option].defaulted();
  };
  if (settings == nullptr) return conversation::take_recommended(target, given, request);
  return conversation::take_recommended(target, *settings, given, request);
}

}  // namespace coppice::cli
