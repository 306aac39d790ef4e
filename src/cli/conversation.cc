#include "cli/conversation.h"

#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "chat/json.h"
#include "chat/unicode.h"
#include "cli/answer_text.h"
#include "engine/access.h"
#include "models/config.h"
#include "models/gguf/gguf_file.h"
#include "models/settings/generation_settings.h"
#include "models/settings/template_settings.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

const chat::Text* text_member(const chat::Value& message, std::string_view name) {
  const chat::Value* value = message.as_dict().named(name);
  return value != nullptr && value->is_string() ? &value->text() : nullptr;
}

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
  const std::string form = R"(; give a list like [{"role": "user", "content": "Hello"}])";
  if (!list.is_list() || list.as_list().items.empty()) {
    throw_usage(cat(where, ": no list of messages", form));
  }
  for (const chat::Value& message : list.as_list().items) {
    const std::size_t number = messages_.size() - (system_.empty() ? 0 : 1) + 1;
    if (!message.is_dict() || text_member(message, "role") == nullptr) {
      throw_usage(cat(where, ": message ", number, " has no role", form));
    }
    // A call of a tool may come without words.
    if (message.as_dict().named("content") == nullptr &&
        message.as_dict().named("tool_calls") == nullptr) {
      throw_usage(cat(where, ": message ", number, " has no content", form));
    }
    if (!system_.empty() && text_member(message, "role")->view() == "system") {
      throw_usage(cat(where, ": it has a system message; leave out --system, or that message"));
    }
    const bool answer = text_member(message, "role")->view() == "assistant";
    messages_.push_back(answer ? owned_answer(message, cat(where, ": message ", number)) : message);
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
  if (template_) return template_->render(chat::Value::list(messages_), true, template_values_);
  chat::Text out;
  for (const chat::Value& message : messages_) {
    const chat::Text* content = text_member(message, "content");
    if (content == nullptr) {
      throw_usage("--no-template: a message has no text for its content; give it one");
    }
    if (!out.empty() && text_member(message, "role")->view() != "assistant") out.append("\n");
    out.append(*content);
  }
  return out;
}

chat::Text Conversation::text_to_continue() const {
  const std::string option = "--continue-message: ";
  const chat::Value& last = messages_.back();
  const std::string& role = text_member(last, "role")->bytes();
  if (role != "assistant") {
    throw_usage(cat(option, "the last message is of the role ", quote(role),
                    "; end the list with an assistant's, or leave the option out"));
  }
  if (!template_) return text();
  // Where the message ends is known by a mark that the template takes for its last word.
  const chat::Text mark("COPPICE_CONTINUES_HERE ", true);
  const std::optional<MarkedMessage> begun = marked(last, mark);
  if (!begun) throw_usage(cat(option, "the last message has no text; give it a content"));
  std::vector<chat::Value> messages = messages_;
  messages.back() = begun->message;
  const chat::Text whole = template_->render(chat::Value::list(messages), false, template_values_);
  const std::string stripped_mark = mark.bytes().substr(0, mark.size() - 1);
  const std::size_t end = whole.view().rfind(stripped_mark);
  const chat::Text words = chat::stripped(begun->said, nullptr, true, true);
  if (end == std::string::npos || whole.view().find(words.view()) == std::string::npos) {
    throw_failure(cat(option, "the chat template does not write the last message as it is; ",
                      "leave the option out, or use --no-template"));
  }
  const chat::Text before = whole.substr(0, end);
  const bool keeps_spaces = whole.view().substr(end).starts_with(mark.view());
  return keeps_spaces ? before : chat::stripped(before, nullptr, false, true);
}

std::vector<TokenId> tokens_of(Engine& engine, const chat::Text& text, bool raw, bool add_bos,
                               std::span<const TokenId> before) {
  if (text.empty()) throw_usage("the conversation is empty; say something");
  const EngineAccess access(engine);
  access.check_bytes(text.view(), static_cast<std::int32_t>(before.size()));
  std::vector<TextPart> parts;
  const std::vector<chat::Segment> segments = text.segments();
  for (const chat::Segment& segment : segments) parts.push_back({segment.text, segment.foreign});
  std::vector<TokenId> tokens =
      access.tokenizer().encode(parts, before.empty() ? Tokenizer::at_start : before.back());
  if (!raw || !add_bos || !before.empty()) return tokens;
  return access.tokenizer().framed(std::move(tokens));
}

std::vector<std::string> take_recommended(const fs::path& target, const po::variables_map& values,
                                          GenerateOptions& request) {
  const GenerationSettings settings(target);
  std::string taken;
  const auto take = [&](const std::string& what) { taken += cat(taken.empty() ? "" : ", ", what); };
  const auto open = [&](const char* option) {
    return values.count(option) == 0 || values[option].defaulted();
  };
  // What no option takes is the file's mistake, not the command's.
  const auto set = [&](const char* key, const char* option, const auto& member, double number) {
    GenerateOptions alone;
    auto& value = member(alone);
    value = static_cast<std::remove_reference_t<decltype(value)>>(number);
    try {
      alone.validate();
    } catch (const Error& error) {
      throw_failure(
          cat(settings.place_of(key), ": ", error.what(), "; correct it or give --", option));
    }
    member(request) = value;
  };
  const auto number = [&](const char* key, const char* option, const auto& member,
                          bool matters = true) {
    if (!open(option)) return;
    const std::optional<double> found = settings.number(key, option);
    if (!found) return;
    set(key, option, member, *found);
    if (matters) take(cat(option, " ", member(request)));
  };
  // As transformers: without sampling the other settings mean nothing.
  if (settings.samples()) {
    if (open("temperature")) {
      set(
          "temperature", "temperature",
          [](GenerateOptions & of) -> auto& { return of.sampling.temperature; },
          settings.number("temperature", "temperature").value_or(1.0));
      take(cat("temperature ", request.sampling.temperature));
    }
    const bool draws = request.sampling.temperature != 0.0;
    number(
        "top_k", "top-k", [](GenerateOptions & of) -> auto& { return of.sampling.top_k; }, draws);
    number(
        "top_p", "top-p", [](GenerateOptions & of) -> auto& { return of.sampling.top_p; }, draws);
    number(
        "min_p", "min-p", [](GenerateOptions & of) -> auto& { return of.sampling.min_p; }, draws);
  }
  number(
      "repetition_penalty", "repetition-penalty",
      [](GenerateOptions & of) -> auto& { return of.sampling.repetition_penalty; });
  number(
      "max_new_tokens", "max-new-tokens",
      [](GenerateOptions & of) -> auto& { return of.max_new_tokens; });
  if (open("stop")) {
    const std::vector<std::string> texts = settings.stop_strings();
    if (!texts.empty()) request.stop = texts;
    for (const std::string& text : texts) take(cat("stop ", quote(text)));
  }
  std::vector<std::string> lines;
  const std::string file = is_gguf(target) ? target.filename().string() : settings.file();
  if (!taken.empty()) lines.push_back(cat(file, ": ", taken));
  std::string ignored;
  SettingNotes notes = settings.notes();
  notes.shorten();
  for (const Setting& one : notes.not_obeyed) {
    ignored += cat(ignored.empty() ? "" : ", ", printable(one.name));
  }
  if (notes.more > 0) ignored += cat(", and ", notes.more, " more");
  if (!ignored.empty()) {
    lines.push_back(cat(file, ": not obeyed, since coppice does not know: ", ignored));
  }
  return lines;
}

}  // namespace coppice::cli
