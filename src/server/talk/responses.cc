#include "server/talk/responses.h"

#include <set>
#include <utility>

namespace coppice::server {
namespace {

std::string text_of_parts(const Place& content) {
  if (content.is_text()) return content.text();
  std::string all;
  for (std::size_t i = 0; i < content.require_list().size(); ++i) {
    const Place part = content.at(i).require_object();
    const std::string& type = part.at("type").text();
    const bool is_refusal = type == "refusal";
    if (!is_refusal && type != "input_text" && type != "output_text" && type != "text") {
      part.refuse("content of type \"" + type + "\" is not supported; send text");
    }
    if (i > 0) all += '\n';
    all += part.at(is_refusal ? "refusal" : "text").text();
  }
  return all;
}

// What an assistant did in one go (reasoning, a message, calls) comes as several items and is one
// message of a chat.
class ChatMessages {
 public:
  void add(const Place& item) {
    const std::string type = item.has("type") ? item.at("type").text() : "message";
    if (type == "message") {
      add_message(item);
    } else if (type == "reasoning") {
      add_reasoning(item);
    } else if (type == "function_call") {
      assistant(false)["tool_calls"].push_back(
          {{"id", item.at("call_id").text()},
           {"type", "function"},
           {"function",
            {{"name", item.at("name").text()}, {"arguments", item.at("arguments").text()}}}});
    } else if (type == "function_call_output") {
      close();
      all_.push_back({{"role", "tool"},
                      {"tool_call_id", item.at("call_id").text()},
                      {"content", text_of_parts(item.at("output"))}});
    } else if (type == "item_reference") {
      item.refuse("items are not kept here; send the item itself");
    } else {
      item.refuse("items of type \"" + type + "\" are not supported");
    }
  }
  Json take() {
    close();
    return std::move(all_);
  }
  void add_text(const char* role, const std::string& text) {
    close();
    all_.push_back({{"role", role}, {"content", text}});
  }

 private:
  void add_message(const Place& item) {
    const std::string& role = item.at("role").word({"user", "assistant", "system", "developer"});
    std::string text = text_of_parts(item.at("content"));
    if (role == "assistant") {
      assistant(true)["content"] = std::move(text);
    } else {
      add_text(role == "developer" ? "system" : role.c_str(), text);
    }
  }
  void add_reasoning(const Place& item) {
    if (!item.has("content")) return;  // a summary, or encrypted
    std::string text;
    const Place content = item.at("content");
    for (std::size_t i = 0; i < content.require_list().size(); ++i) {
      text += content.at(i).require_object().at("text").text();
    }
    if (!text.empty()) assistant(true)["reasoning_content"] = std::move(text);
  }
  // The open message; a new one where it already says something and `begins` more.
  Json& assistant(bool begins) {
    const bool says = open_.is_object() && (open_["content"] != "" || open_.contains("tool_calls"));
    if (begins && says) close();
    if (!open_.is_object()) open_ = {{"role", "assistant"}, {"content", ""}};
    return open_;
  }
  void close() {
    if (open_.is_object()) all_.push_back(std::exchange(open_, nullptr));
  }

  Json all_ = Json::array(), open_;
};

void refuse_what_is_kept(const Place& request) {
  if (request.has("previous_response_id")) {
    request.at("previous_response_id")
        .refuse("responses are not kept here; send the whole conversation as input");
  }
  if (request.has("conversation")) {
    request.at("conversation")
        .refuse("conversations are not kept here; send the whole conversation as input");
  }
  if (request.has("store") && request.at("store").boolean()) {
    request.at("store").refuse("responses are not kept here; leave it out or send false");
  }
  if (request.has("background") && request.at("background").boolean()) {
    request.at("background").refuse("not supported; leave it out and wait, or stream");
  }
  if (request.has("prompt")) {
    request.at("prompt").refuse("prompts are not kept here; send the text as input");
  }
  if (request.has("truncation")) request.at("truncation").word({"disabled"});
}

Json function_tools(const Place& tools, const std::set<std::string>& allowed) {
  Json all = Json::array();
  for (std::size_t i = 0; i < tools.require_list().size(); ++i) {
    const Place tool = tools.at(i).require_object();
    if (tool.at("type").text() != "function") {
      tool.at("type").refuse("only tools of type \"function\" are supported");
    }
    const std::string& name = tool.at("name").text();
    if (!allowed.empty() && !allowed.contains(name)) continue;
    Json function = {{"name", name}};
    copy_members(tool.json(), function, {"description", "parameters", "strict"});
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

// Returns the names that "allowed_tools" leaves; empty: all.
std::set<std::string> read_choice_of_tools(const Place& choice, Json& chat) {
  std::set<std::string> allowed;
  if (choice.is_text()) {
    chat["tool_choice"] = choice.word({"none", "auto", "required"});
    return allowed;
  }
  const std::string& type = choice.require_object().at("type").word({"function", "allowed_tools"});
  if (type == "function") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.at("name").text()}}}};
    return allowed;
  }
  chat["tool_choice"] = choice.at("mode").word({"auto", "required"});
  const Place tools = choice.at("tools");
  for (std::size_t i = 0; i < tools.require_list().size(); ++i) {
    const Place tool = tools.at(i).require_object();
    tool.at("type").word({"function"});
    allowed.insert(tool.at("name").text());
  }
  if (allowed.empty()) tools.refuse("at least one tool is required");
  return allowed;
}

void read_format(const Place& text, Json& chat) {
  text.require_members({"format", "verbosity"});
  if (text.has("verbosity")) {
    // Nothing to say it to; the usual one asks for nothing.
    text.at("verbosity").word({"medium"});
  }
  if (!text.has("format")) return;
  const Place format = text.at("format").require_object();
  const std::string& type = format.at("type").word({"text", "json_object", "json_schema"});
  Json form = {{"type", type}};
  if (type == "json_schema") {
    Json schema = {{"name", format.at("name").text()}};
    schema["schema"] = format.at("schema").json();
    copy_members(format.json(), schema, {"description", "strict"});
    form["json_schema"] = std::move(schema);
  }
  chat["response_format"] = std::move(form);
}

void read_logprobs(const Place& request, Json& chat) {
  bool asked = false;
  if (request.has("include")) {
    const Place include = request.at("include");
    for (std::size_t i = 0; i < include.require_list().size(); ++i) {
      const std::string& what =
          include.at(i).word({"message.output_text.logprobs", "reasoning.encrypted_content"});
      asked = asked || what == "message.output_text.logprobs";
    }
  }
  const std::int64_t top = request.has("top_logprobs") ? request.at("top_logprobs").integer(0) : 0;
  if (!asked && top == 0) return;
  chat["logprobs"] = true;
  if (request.has("top_logprobs")) chat["top_logprobs"] = top;
}

}  // namespace

Json chat_request_of_responses(const Json& json) {
  const Place request(json);
  request.require_members({"model",
                           "input",
                           "instructions",
                           "tools",
                           "tool_choice",
                           "parallel_tool_calls",
                           "max_output_tokens",
                           "temperature",
                           "top_p",
                           "top_logprobs",
                           "include",
                           "text",
                           "reasoning",
                           "stream",
                           "stream_options",
                           "store",
                           "previous_response_id",
                           "conversation",
                           "background",
                           "prompt",
                           "truncation",
                           "metadata",
                           "user",
                           "safety_identifier",
                           "prompt_cache_key",
                           "prompt_cache_options",
                           "prompt_cache_retention",
                           "service_tier",
                           "max_tool_calls",
                           "seed",
                           "top_k",
                           "min_p",
                           "speculation"});
  refuse_what_is_kept(request);
  // What the answer repeats:
  if (request.has("user")) request.at("user").text();
  if (request.has("max_tool_calls")) request.at("max_tool_calls").integer(1);
  if (request.has("metadata")) {
    const Place metadata = request.at("metadata");
    for (const auto& [name, value] : metadata.require_object().json().items()) {
      if (!value.is_string()) metadata.at(name.c_str()).text();
    }
  }
  Json chat = Json::object();
  ChatMessages messages;
  if (request.has("instructions")) {
    messages.add_text("system", request.at("instructions").text());
  }
  const Place input = request.at("input");
  if (input.is_text()) {
    messages.add_text("user", input.text());
  } else {
    for (std::size_t i = 0; i < input.require_list().size(); ++i) {
      messages.add(input.at(i).require_object());
    }
  }
  chat["messages"] = messages.take();
  if (chat["messages"].empty()) input.refuse("at least one item is required");
  copy_members(json, chat,
               {"model", "temperature", "top_p", "parallel_tool_calls", "stream", "user", "seed",
                "top_k", "min_p", "speculation"});
  if (request.has("stream") && request.at("stream").boolean()) {
    chat["stream_options"] = {{"include_usage", true}};
  }
  if (request.has("max_output_tokens")) {
    chat["max_completion_tokens"] = request.at("max_output_tokens").integer(1);
  }
  std::set<std::string> allowed;
  if (request.has("tool_choice")) allowed = read_choice_of_tools(request.at("tool_choice"), chat);
  if (request.has("tools")) chat["tools"] = function_tools(request.at("tools"), allowed);
  if (request.has("text")) read_format(request.at("text"), chat);
  if (request.has("reasoning") && request.at("reasoning").require_object().has("effort")) {
    chat["reasoning_effort"] = request.at("reasoning").at("effort").text();
  }
  read_logprobs(request, chat);
  return chat;
}

const Json& ResponsesStream::whole(const Json& completion) {
  feed(chunk_of_completion(completion));
  finish();
  return response_;
}

void ResponsesStream::send(const std::string& name, Json data) {
  Json all = {{"type", name}, {"sequence_number", sequence_++}};
  all.update(data);
  out_.push_back({name, std::move(all)});
}

void ResponsesStream::send_response(const std::string& name) {
  send(name, {{"response", response_}});
}

void ResponsesStream::begin(const Json& chunk) {
  is_begun_ = true;
  const auto given = [&](const char* name, Json otherwise) {
    const auto found = request_.find(name);
    return found == request_.end() || found->is_null() ? std::move(otherwise) : *found;
  };
  Json text = given("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  Json reasoning = given("reasoning", Json::object());
  response_ = {{"id", renamed_id(chunk, "resp_")},
               {"object", "response"},
               {"created_at", chunk.value("created", std::int64_t{0})},
               {"status", "in_progress"},
               {"background", false},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"instructions", given("instructions", nullptr)},
               {"max_output_tokens", given("max_output_tokens", nullptr)},
               {"max_tool_calls", given("max_tool_calls", nullptr)},
               {"model", chunk.value("model", "")},
               {"output", Json::array()},
               {"parallel_tool_calls", given("parallel_tool_calls", true)},
               {"previous_response_id", nullptr},
               {"reasoning",
                {{"effort", reasoning.contains("effort") ? reasoning["effort"] : Json()},
                 {"summary", nullptr}}},
               {"store", false},
               {"temperature", given("temperature", 1.0)},
               {"text", std::move(text)},
               {"tool_choice", given("tool_choice", "auto")},
               {"tools", given("tools", Json::array())},
               {"top_logprobs", given("top_logprobs", 0)},
               {"top_p", given("top_p", 1.0)},
               {"truncation", "disabled"},
               {"usage", nullptr},
               {"metadata", given("metadata", Json::object())}};
  if (Json user = given("user", nullptr); !user.is_null()) response_["user"] = std::move(user);
  send_response("response.created");
  send_response("response.in_progress");
}

void ResponsesStream::read_usage(const Json& usage) {
  if (!usage.is_object()) return;
  const auto count = [](const Json& from, const char* name) {
    const auto found = from.find(name);
    return found != from.end() && found->is_number() ? found->get<std::int64_t>() : 0;
  };
  const auto detail = [&](const char* details, const char* name) {
    const auto found = usage.find(details);
    return found != usage.end() && found->is_object() ? count(*found, name) : 0;
  };
  const std::int64_t input = count(usage, "prompt_tokens");
  const std::int64_t output = count(usage, "completion_tokens");
  response_["usage"] = {
      {"input_tokens", input},
      {"input_tokens_details",
       {{"cached_tokens", detail("prompt_tokens_details", "cached_tokens")},
        {"cache_write_tokens", 0}}},
      {"output_tokens", output},
      {"output_tokens_details",
       {{"reasoning_tokens", detail("completion_tokens_details", "reasoning_tokens")}}},
      {"total_tokens", input + output}};
}

Json ResponsesStream::place(bool in_content) const {
  const Json& output = response_["output"];
  Json place = {{"item_id", output.back()["id"]}, {"output_index", output.size() - 1}};
  if (in_content) place["content_index"] = 0;
  return place;
}

void ResponsesStream::open_item(Json item) {
  close_item(false);
  is_open_ = true;
  item["status"] = "in_progress";
  Json& output = response_["output"];
  Json shown = item;
  if (shown.contains("content")) shown["content"] = Json::array();
  send("response.output_item.added", {{"output_index", output.size()}, {"item", shown}});
  output.push_back(std::move(item));
}

void ResponsesStream::close_item(bool is_last) {
  if (!is_open_) return;
  is_open_ = false;
  open_call_ = -1;
  Json& item = response_["output"].back();
  item["status"] = is_last && finish_reason_ == "length" ? "incomplete" : "completed";
  if (item["type"] == "function_call") {
    Json done = place(false);
    done["name"] = item["name"];
    done["arguments"] = item["arguments"];
    send("response.function_call_arguments.done", std::move(done));
  } else {
    const Json& part = item["content"][0];
    Json done = place(true);
    done["text"] = part["text"];
    const bool is_message = item["type"] == "message";
    if (is_message) done["logprobs"] = part["logprobs"];
    send(is_message ? "response.output_text.done" : "response.reasoning_text.done",
         std::move(done));
    Json part_done = place(true);
    part_done["part"] = part;
    send("response.content_part.done", std::move(part_done));
  }
  send("response.output_item.done",
       {{"output_index", response_["output"].size() - 1}, {"item", item}});
}

void ResponsesStream::add_text(bool is_reasoning, const std::string& text, const Json& logprobs) {
  if (text.empty() && logprobs.empty()) return;
  const char* type = is_reasoning ? "reasoning" : "message";
  if (!is_open_ || response_["output"].back()["type"] != type) {
    if (text.empty()) return;
    const std::string number = std::to_string(response_["output"].size());
    const std::string id = response_["id"].get<std::string>().substr(5) + "_" + number;
    if (is_reasoning) {
      open_item({{"id", "rs_" + id},
                 {"type", "reasoning"},
                 {"summary", Json::array()},
                 {"content", Json::array({{{"type", "reasoning_text"}, {"text", ""}}})}});
    } else {
      open_item({{"id", "msg_" + id},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"content", Json::array({{{"type", "output_text"},
                                           {"text", ""},
                                           {"annotations", Json::array()},
                                           {"logprobs", Json::array()}}})}});
    }
    Json added = place(true);
    added["part"] = response_["output"].back()["content"][0];
    send("response.content_part.added", std::move(added));
  }
  Json& part = response_["output"].back()["content"][0];
  part["text"].get_ref<std::string&>() += text;
  Json delta = place(true);
  delta["delta"] = text;
  if (!is_reasoning) {
    for (const Json& one : logprobs) part["logprobs"].push_back(one);
    delta["logprobs"] = logprobs;
  }
  send(is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
       std::move(delta));
}

void ResponsesStream::add_call(const Json& call) {
  const auto number = call.value("index", std::int64_t{0});
  const Json function = call.contains("function") ? call["function"] : Json::object();
  if (!is_open_ || open_call_ != number) {
    const std::string index = std::to_string(response_["output"].size());
    open_item({{"id", "fc_" + response_["id"].get<std::string>().substr(5) + "_" + index},
               {"type", "function_call"},
               {"call_id", call.value("id", "")},
               {"name", function.value("name", "")},
               {"arguments", ""}});
    open_call_ = number;
  }
  const std::string text = function.value("arguments", "");
  if (text.empty()) return;
  response_["output"].back()["arguments"].get_ref<std::string&>() += text;
  Json delta = place(false);
  delta["delta"] = text;
  send("response.function_call_arguments.delta", std::move(delta));
}

std::vector<NamedEvent> ResponsesStream::feed(const Json& chunk) {
  if (is_over_) return {};
  if (chunk.contains("error")) {
    is_over_ = true;
    const Json& error = chunk["error"];
    const std::string message = error.value("message", "");
    if (is_begun_) {
      response_["status"] = "failed";
      response_["error"] = {{"code", "server_error"}, {"message", message}};
      send_response("response.failed");
    } else {
      send("error", {{"code", "server_error"}, {"message", message}, {"param", nullptr}});
    }
    return std::exchange(out_, {});
  }
  if (!is_begun_) begin(chunk);
  const Json& choices = chunk["choices"];
  if (!choices.empty()) {
    const Json& choice = choices[0];
    if (const auto reason = choice.find("finish_reason");
        reason != choice.end() && reason->is_string()) {
      finish_reason_ = *reason;
    }
    const Json& delta = choice["delta"];
    const auto text = [&](const char* name) {
      const auto found = delta.find(name);
      return found != delta.end() && found->is_string() ? found->get<std::string>() : "";
    };
    Json logprobs = Json::array();
    if (const auto found = choice.find("logprobs"); found != choice.end() && found->is_object()) {
      if (found->contains("content") && (*found)["content"].is_array()) {
        logprobs = (*found)["content"];
      }
    }
    add_text(true, text("reasoning_content"), Json::array());
    add_text(false, text("content"), logprobs);
    if (const auto calls = delta.find("tool_calls"); calls != delta.end() && calls->is_array()) {
      for (const Json& call : *calls) add_call(call);
    }
  }
  if (chunk.contains("usage")) read_usage(chunk["usage"]);
  return std::exchange(out_, {});
}

std::vector<NamedEvent> ResponsesStream::finish() {
  if (is_over_ || !is_begun_) return {};
  is_over_ = true;
  close_item(true);
  const bool was_cut = finish_reason_ == "length";
  response_["status"] = was_cut ? "incomplete" : "completed";
  if (was_cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  send_response(was_cut ? "response.incomplete" : "response.completed");
  return std::exchange(out_, {});
}

}  // namespace coppice::server
