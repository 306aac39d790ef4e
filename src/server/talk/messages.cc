#include "server/talk/messages.h"

#include <utility>

namespace coppice::server {
namespace {

void join(std::string& all, const std::string& text) {
  if (!all.empty() && !text.empty()) all += '\n';
  all += text;
}

// A string, or blocks of text alone.
std::string plain_text(const Place& content) {
  if (content.is_text()) return content.text();
  std::string all;
  for (std::size_t i = 0; i < content.require_list().size(); ++i) {
    const Place block = content.at(i).require_object();
    const std::string& type = block.at("type").text();
    if (type != "text")
      block.refuse("content of type \"" + type + "\" is not supported; send text");
    join(all, block.at("text").text());
  }
  return all;
}

// A user's message: results of tools come before what is said along with them.
void add_user(const Place& content, Json& messages) {
  std::string said;
  const auto flush = [&] {
    if (!said.empty()) messages.push_back({{"role", "user"}, {"content", std::exchange(said, {})}});
  };
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Place block = content.at(i).require_object();
    const std::string& type = block.at("type").text();
    if (type == "text") {
      join(said, block.at("text").text());
    } else if (type == "tool_result") {
      flush();
      std::string result = block.has("content") ? plain_text(block.at("content")) : "";
      if (block.has("is_error") && block.at("is_error").boolean()) result = "Error: " + result;
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block.at("tool_use_id").text()},
                          {"content", std::move(result)}});
    } else {
      block.refuse("content of type \"" + type + "\" is not supported; send text");
    }
  }
  flush();
}

void add_assistant(const Place& content, Json& messages) {
  std::string said, thought;
  Json calls = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Place block = content.at(i).require_object();
    const std::string& type = block.at("type").text();
    if (type == "text") {
      join(said, block.at("text").text());
    } else if (type == "thinking") {
      join(thought, block.at("thinking").text());
    } else if (type == "tool_use") {
      const Json& input = block.at("input").require_object().json();
      calls.push_back(
          {{"id", block.at("id").text()},
           {"type", "function"},
           {"function", {{"name", block.at("name").text()}, {"arguments", input.dump()}}}});
    } else if (type != "redacted_thinking") {
      block.refuse("content of type \"" + type + "\" is not supported; send text");
    }
  }
  Json message = {{"role", "assistant"}, {"content", std::move(said)}};
  if (!thought.empty()) message["reasoning_content"] = std::move(thought);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages.push_back(std::move(message));
}

Json chat_messages(const Place& request) {
  Json messages = Json::array();
  if (request.has("system")) {
    messages.push_back({{"role", "system"}, {"content", plain_text(request.at("system"))}});
  }
  const Place given = request.at("messages").require_list();
  if (given.size() == 0) given.refuse("at least one message is required");
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Place message = given.at(i);
    message.require_members({"role", "content"});
    const std::string& role = message.at("role").word({"user", "assistant", "system"});
    const Place content = message.at("content");
    if (content.is_text() || role == "system") {
      messages.push_back({{"role", role}, {"content", plain_text(content)}});
    } else if (content.require_list(); role == "user") {
      add_user(content, messages);
    } else {
      add_assistant(content, messages);
    }
  }
  return messages;
}

Json chat_tools(const Place& tools) {
  Json all = Json::array();
  for (std::size_t i = 0; i < tools.require_list().size(); ++i) {
    const Place tool = tools.at(i).require_object();
    if (tool.has("type") && tool.at("type").text() != "custom") {
      tool.at("type").refuse("tools that the server runs are not supported; define your own");
    }
    tool.require_members({"type", "name", "description", "input_schema", "cache_control", "strict",
                          "input_examples", "defer_loading", "eager_input_streaming",
                          "allowed_callers"});
    Json function = {{"name", tool.at("name").text()}};
    copy_members(tool.json(), function, {"description", "strict"});
    function["parameters"] = tool.at("input_schema").require_object().json();
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

void read_tool_choice(const Place& choice, Json& chat) {
  choice.require_members({"type", "name", "disable_parallel_tool_use"});
  const std::string& type = choice.at("type").word({"auto", "any", "tool", "none"});
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.at("name").text()}}}};
  } else {
    chat["tool_choice"] = type == "any" ? "required" : type;
  }
  if (choice.has("disable_parallel_tool_use")) {
    chat["parallel_tool_calls"] = !choice.at("disable_parallel_tool_use").boolean();
  }
}

void read_output_config(const Place& config, Json& chat) {
  config.require_members({"effort", "format"});
  if (config.has("effort")) chat["reasoning_effort"] = config.at("effort").text();
  if (!config.has("format")) return;
  const Place format = config.at("format");
  format.require_members({"type", "schema"});
  format.at("type").word({"json_schema"});
  chat["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "answer"}, {"schema", format.at("schema").json()}, {"strict", true}}}};
}

Json usage_of(std::int64_t input, std::int64_t cached, std::int64_t output) {
  return {{"input_tokens", input - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

// Chat's reasons.
const char* stop_reason_of(const std::string& reason, bool is_stop_text) {
  if (reason == "length") return "max_tokens";
  if (reason == "tool_calls") return "tool_use";
  return is_stop_text ? "stop_sequence" : "end_turn";
}

}  // namespace

Json chat_request_of_messages(const Json& json, bool counts) {
  const Place request(json);
  request.require_members({"model", "messages", "max_tokens", "system", "stop_sequences",
                           "temperature", "top_p", "top_k", "stream", "metadata", "tools",
                           "tool_choice", "thinking", "output_config", "service_tier",
                           "cache_control", "seed", "speculation"});
  Json chat = Json::object();
  chat["messages"] = chat_messages(request);
  if (!counts) chat["max_tokens"] = request.at("max_tokens").integer(1);
  copy_members(json, chat,
               {"model", "temperature", "top_p", "top_k", "stream", "seed", "speculation"});
  if (request.has("stream") && request.at("stream").boolean()) {
    chat["stream_options"] = {{"include_usage", true}};
  }
  if (request.has("stop_sequences")) {
    const Place stops = request.at("stop_sequences");
    for (std::size_t i = 0; i < stops.require_list().size(); ++i) stops.at(i).text();
    chat["stop"] = stops.json();
  }
  if (request.has("metadata") && request.at("metadata").require_object().has("user_id")) {
    chat["user"] = request.at("metadata").at("user_id").text();
  }
  if (request.has("tools")) chat["tools"] = chat_tools(request.at("tools"));
  if (request.has("tool_choice")) read_tool_choice(request.at("tool_choice"), chat);
  if (request.has("thinking")) {
    const std::string& type = request.at("thinking")
                                  .require_object()
                                  .at("type")
                                  .word({"enabled", "disabled", "adaptive"});
    if (type != "adaptive") {
      chat["chat_template_kwargs"] = {{"enable_thinking", type == "enabled"}};
    }
  }
  if (request.has("output_config")) read_output_config(request.at("output_config"), chat);
  if (chat["messages"].back()["role"] == "assistant") {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  return chat;
}

const Json& MessagesStream::whole(const Json& completion) {
  feed(chunk_of_completion(completion));
  finish();
  return message_;
}

Json messages_error(int status, std::string_view message) {
  const char* type = "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 403) type = "permission_error";
  if (status == 404) type = "not_found_error";
  if (status == 413) type = "request_too_large";
  if (status == 429) type = "rate_limit_error";
  if (status == 503 || status == 529) type = "overloaded_error";
  if (status == 504) type = "timeout_error";
  if (status == 500) type = "api_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

Json messages_count(std::int64_t tokens) { return {{"input_tokens", tokens}}; }

void MessagesStream::send(const char* name, Json data) {
  Json all = {{"type", name}};
  all.update(data);
  out_.push_back({name, std::move(all)});
}

void MessagesStream::begin(const Json& chunk) {
  is_begun_ = true;
  message_ = {
      {"id", renamed_id(chunk, "msg_")},   {"type", "message"},         {"role", "assistant"},
      {"model", chunk.value("model", "")}, {"content", Json::array()},  {"stop_reason", nullptr},
      {"stop_sequence", nullptr},          {"usage", usage_of(0, 0, 0)}};
  if (chunk.contains("usage")) read_usage(chunk["usage"]);
  send("message_start", {{"message", message_}});
}

void MessagesStream::read_usage(const Json& usage) {
  if (!usage.is_object()) return;
  std::int64_t cached = 0;
  if (const auto details = usage.find("prompt_tokens_details");
      details != usage.end() && details->is_object()) {
    cached = details->value("cached_tokens", std::int64_t{0});
  }
  message_["usage"] = usage_of(usage.value("prompt_tokens", std::int64_t{0}), cached,
                               usage.value("completion_tokens", std::int64_t{0}));
}

void MessagesStream::open_block(Json block) {
  close_block();
  is_open_ = true;
  send("content_block_start", {{"index", message_["content"].size()}, {"content_block", block}});
  message_["content"].push_back(std::move(block));
}

void MessagesStream::close_block() {
  if (!is_open_) return;
  is_open_ = false;
  Json& block = message_["content"].back();
  const std::size_t index = message_["content"].size() - 1;
  if (open_call_ >= 0) {
    Json input = Json::parse(arguments_.empty() ? "{}" : arguments_, nullptr, false);
    // A call that the token limit cut off is shown as it was written.
    if (input.is_object()) {
      block["input"] = std::move(input);
    } else {
      block = {{"type", "text"}, {"text", block["name"].get<std::string>() + " " + arguments_}};
    }
    open_call_ = -1;
    arguments_.clear();
  }
  send("content_block_stop", {{"index", index}});
}

void MessagesStream::add_text(const char* type, const char* member, const std::string& text) {
  if (text.empty()) return;
  if (!is_open_ || message_["content"].back()["type"] != type) {
    Json block = {{"type", type}, {member, ""}};
    if (std::string_view(type) == "thinking") block["signature"] = "";
    open_block(std::move(block));
  }
  Json& block = message_["content"].back();
  block[member].get_ref<std::string&>() += text;
  send("content_block_delta",
       {{"index", message_["content"].size() - 1},
        {"delta", {{"type", std::string(type) + "_delta"}, {member, text}}}});
}

void MessagesStream::add_call(const Json& call) {
  const auto number = call.value("index", std::int64_t{0});
  const Json& function = call.contains("function") ? call["function"] : Json::object();
  if (!is_open_ || open_call_ != number) {
    open_block({{"type", "tool_use"},
                {"id", call.value("id", "")},
                {"name", function.value("name", "")},
                {"input", Json::object()}});
    open_call_ = number;
  }
  const std::string text = function.value("arguments", "");
  if (text.empty()) return;
  arguments_ += text;
  send("content_block_delta", {{"index", message_["content"].size() - 1},
                               {"delta", {{"type", "input_json_delta"}, {"partial_json", text}}}});
}

std::vector<NamedEvent> MessagesStream::feed(const Json& chunk) {
  if (is_over_) return {};
  if (chunk.contains("error")) {
    is_over_ = true;
    const Json& error = chunk["error"];
    const int status = error.contains("code") && error["code"].is_number_integer()
                           ? error["code"].get<int>()
                           : 500;
    const Json form = messages_error(status, error.value("message", ""));
    send("error", {{"error", form["error"]}});
    return std::exchange(out_, {});
  }
  if (!is_begun_) begin(chunk);
  const Json& choices = chunk["choices"];
  if (!choices.empty()) {
    const Json& choice = choices[0];
    const Json& delta = choice["delta"];
    const auto text = [&](const char* name) {
      const auto found = delta.find(name);
      return found != delta.end() && found->is_string() ? found->get<std::string>() : "";
    };
    add_text("thinking", "thinking", text("reasoning_content"));
    add_text("text", "text", text("content"));
    if (const auto calls = delta.find("tool_calls"); calls != delta.end() && calls->is_array()) {
      for (const Json& call : *calls) add_call(call);
    }
    if (const auto reason = choice.find("finish_reason");
        reason != choice.end() && reason->is_string()) {
      const auto stop = choice.find("stop_reason");
      const bool is_stop_text = stop != choice.end() && stop->is_string();
      message_["stop_reason"] = stop_reason_of(*reason, is_stop_text);
      if (message_["stop_reason"] == "stop_sequence") message_["stop_sequence"] = *stop;
    }
  }
  if (chunk.contains("usage")) read_usage(chunk["usage"]);
  return std::exchange(out_, {});
}

std::vector<NamedEvent> MessagesStream::finish() {
  if (is_over_ || !is_begun_) return {};
  is_over_ = true;
  close_block();
  send("message_delta",
       {{"delta",
         {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
        {"usage", message_["usage"]}});
  send("message_stop", Json::object());
  return std::exchange(out_, {});
}

}  // namespace coppice::server
