#include "server/api/chat_messages.h"

#include <array>
#include <string>

#include "base/error.h"
#include "server/api/api_error.h"
#include "server/api/fields.h"

namespace coppice::server {
namespace {

constexpr std::array<std::string_view, 5> roles = {"system", "developer", "user", "assistant",
                                                   "tool"};

std::string text_of_parts(const std::string& path, const Json& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string place = cat(path, '[', i, ']');
    if (!parts[i].is_object()) throw bad_field(place, "give an object");
    Fields part(parts[i], place + ".");
    const std::string type = part.text("type").value_or("");
    const bool refusal = type == "refusal";
    if (type != "text" && !refusal) {
      throw bad_field(part.path("type"),
                      cat(quote(type), ": this model reads text alone; use \"text\""));
    }
    const auto words = part.text(refusal ? "refusal" : "text");
    if (!words) throw bad_field(part.path("text"), "it is missing");
    text += (i == 0 ? "" : "\n") + *words;
  }
  return text;
}

Json read_tool_calls(const std::string& path, const Json& calls) {
  Json read = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string place = cat(path, '[', i, ']');
    if (!calls[i].is_object()) throw bad_field(place, "give an object");
    Json call = calls[i];
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object() || !function->contains("name") ||
        !(*function)["name"].is_string()) {
      throw bad_field(place + ".function", "give an object with a name and arguments");
    }
    // Templates write arguments as JSON themselves.
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && arguments->is_string()) {
      const std::string text = arguments->get<std::string>();
      Json parsed = text.empty() ? Json::object() : parse_object_or_null(text);
      if (parsed.is_object()) *arguments = std::move(parsed);
    }
    read.push_back(std::move(call));
  }
  return read;
}

Json read_message(const std::string& path, const Json& given, std::string_view template_source) {
  if (!given.is_object()) throw bad_field(path, "give an object with a role and a content");
  Fields fields(given, path + ".");
  Json message = given;
  std::string role = fields.text("role").value_or("");
  bool known = false;
  for (const std::string_view one : roles) known = known || role == one;
  if (!known) {
    throw bad_field(fields.path("role"),
                    cat(quote(role), ": use system, developer, user, assistant or tool"));
  }
  if (role == "developer" && template_source.find("developer") == template_source.npos) {
    message["role"] = "system";
  }
  const Json* const content = fields.find("content");
  const Json* const calls = fields.list("tool_calls");
  const bool calls_tools = calls != nullptr && !calls->empty();
  if (content == nullptr) {
    if (role != "assistant") throw bad_field(fields.path("content"), "it is missing");
    message["content"] = "";
  } else if (content->is_array()) {
    message["content"] = text_of_parts(fields.path("content"), *content);
  } else if (!content->is_string()) {
    throw bad_field(fields.path("content"), "give a string, or a list of parts");
  }
  if (calls_tools) {
    if (role != "assistant") {
      throw bad_field(fields.path("tool_calls"), "they belong to a message of the assistant");
    }
    message["tool_calls"] = read_tool_calls(fields.path("tool_calls"), *calls);
  } else {
    message.erase("tool_calls");
  }
  for (const char* const name : {"refusal", "audio", "function_call", "annotations"}) {
    if (message.contains(name) && message[name].is_null()) message.erase(name);
  }
  return message;
}

}  // namespace

Json template_messages(const Json& messages, std::string_view template_source) {
  if (!messages.is_array() || messages.empty()) {
    throw bad_field("messages", R"(give a list like [{"role": "user", "content": "Hello"}])");
  }
  Json read = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    read.push_back(read_message(cat("messages[", i, ']'), messages[i], template_source));
  }
  return read;
}

}  // namespace coppice::server
