// Chats over HTTP, in three APIs' words.
#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/host_memory.h"
#include "client.h"
#include "fake_backend.h"
#include "running_server.h"
#include "server/talk/answer_form.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

const std::string hello = R"("messages": [{"role": "user", "content": "Hello"}])";
const std::string weather =
    R"("tools": [{"type": "function", "function": {"name": "weather", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

class Chats : public ::testing::Test {
 protected:
  Reply post(const std::string& body, const std::string& path = "/v1/chat/completions") {
    return ask(server_.port(), "POST", path, body);
  }
  Json messages() const { return Json::parse(backend_.last_prompt().messages); }

  FakeBackend backend_;
  RunningServer server_{&backend_, fake_service(), small_limits()};
};

TEST_F(Chats, AnAnswerHasOpenAisShape) {
  const Json json = post("{" + hello + "}").json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello, world");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_FALSE(json["choices"][0]["message"].contains("tool_calls"));
}

TEST_F(Chats, WantOfMemoryIsNotTheMessages) {
  backend_.chat_fails = std::make_exception_ptr(Error(ErrorKind::failure, "no such role"));
  EXPECT_EQ(post("{" + hello + "}").status, 400);
  backend_.chat_fails = std::make_exception_ptr(HostMemoryError("chat: memory ran out"));
  EXPECT_EQ(post("{" + hello + "}").status, 500);
}

TEST_F(Chats, AStreamNamesTheRoleFirst) {
  const std::vector<std::string> events =
      post("{" + hello + R"(, "stream": true, "stream_options": {"include_usage": true}})")
          .events();
  ASSERT_GT(events.size(), 4u);
  const Json first = Json::parse(events[0]);
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_FALSE(first.contains("usage"));
  std::string text;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json json = Json::parse(events[i]);
    EXPECT_EQ(json["id"], first["id"]);
    if (!json["choices"].empty()) text += json["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "Hello, world");
  EXPECT_EQ(Json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 12);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(Chats, MessagesReachTheTemplateAsItReadsThem) {
  const Reply reply = post(R"({"messages": [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json read = messages();
  EXPECT_EQ(read[0]["role"], "system");
  EXPECT_EQ(read[1]["content"], "one\ntwo");
  EXPECT_EQ(read[2]["content"], "");
  EXPECT_EQ(read[2]["tool_calls"][0]["function"]["arguments"]["city"], "Rome");
  EXPECT_EQ(read[3]["tool_call_id"], "c1");
}

TEST_F(Chats, WrongMessagesAreNamed) {
  for (const auto& [given, param] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "messages"},
           {"5", "messages"},
           {"[5]", "messages[0]"},
           {R"([{"content": "x"}])", "messages[0].role"},
           {R"([{"role": "king", "content": "x"}])", "messages[0].role"},
           {R"([{"role": "user"}])", "messages[0].content"},
           {R"([{"role": "user", "content": 5}])", "messages[0].content"},
           {R"([{"role": "user", "content": [{"type": "image_url"}]}])",
            "messages[0].content[0].type"},
           {R"([{"role": "user", "content": "x", "tool_calls": [{}]}])", "messages[0].tool_calls"},
           {R"([{"role": "assistant", "tool_calls": [{}]}])",
            "messages[0].tool_calls[0].function"}}) {
    const Reply reply = post(std::string("{\"messages\": ") + given + "}");
    EXPECT_EQ(reply.status, 400) << given;
    EXPECT_EQ(reply.json()["error"]["param"], param) << given << reply.body;
  }
  for (const char* field : {R"("store": true)", R"("functions": [])", R"("modalities": ["audio"])",
                            R"("top_logprobs": 2)", R"("logprobs": 2)", R"("prediction": {})",
                            R"("continue_final_message": true, "add_generation_prompt": true)",
                            R"("tool_choice": "required")", R"("reasoning_effort": 5)",
                            R"("chat_template_kwargs": {"colour": "red"})"}) {
    EXPECT_EQ(post("{" + hello + ", " + field + "}").status, 400) << field;
  }
}

TEST_F(Chats, ReasoningIsSetWhereTheTemplateReadsIt) {
  EXPECT_EQ(post("{" + hello + R"(, "reasoning_effort": "low"})").status, 200);
  EXPECT_EQ(Json::parse(backend_.last_prompt().values)["enable_thinking"], true);
  EXPECT_EQ(post("{" + hello + R"(, "reasoning_effort": "none"})").status, 200);
  EXPECT_EQ(Json::parse(backend_.last_prompt().values)["enable_thinking"], false);
}

TEST_F(Chats, ToolCallsAreFoundInTheText) {
  backend_.answer =
      "I look.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Rome\"}}\n</tool_call>";
  backend_.facts_.chat_template += " arguments";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{200}}) {
    backend_.piece = piece;
    const Json choice = post("{" + hello + ", " + weather + "}").json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(choice["message"]["content"], "I look.");
    const Json& call = choice["message"]["tool_calls"][0];
    EXPECT_EQ(call["function"]["name"], "weather");
    EXPECT_EQ(Json::parse(call["function"]["arguments"].get<std::string>())["city"], "Rome");
    EXPECT_EQ(call["id"].get<std::string>().substr(0, 5), "call_");

    std::string content, name, arguments, finish;
    const std::vector<std::string> events =
        post("{" + hello + ", " + weather + R"(, "stream": true})").events();
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
      const Json one = Json::parse(events[i])["choices"][0];
      content += one["delta"].value("content", "");
      if (one["finish_reason"].is_string()) finish = one["finish_reason"];
      if (!one["delta"].contains("tool_calls")) continue;
      const Json& function = one["delta"]["tool_calls"][0]["function"];
      name += function.value("name", "");
      arguments += function.value("arguments", "");
    }
    EXPECT_EQ(content, "I look.");
    EXPECT_EQ(name, "weather");
    EXPECT_EQ(Json::parse(arguments)["city"], "Rome");
    EXPECT_EQ(finish, "tool_calls");
  }
  EXPECT_NE(backend_.last_prompt().tools.find("weather"), std::string::npos);
}

TEST_F(Chats, ToolCallsWithTagsAreFoundInTheText) {
  backend_.answer =
      "<tool_call>\n<function=weather>\n<parameter=city>\n7\n</parameter>\n</function>\n</"
      "tool_call>";
  backend_.facts_.chat_template += "<function=<parameter=";
  const std::string typed = R"("tools": [{"type": "function", "function": {"name": "weather",
      "parameters": {"properties": {"city": {"type": "string"}}}}}])";
  const auto arguments = [&](const std::string& tools) {
    const Json choice = post("{" + hello + ", " + tools + "}").json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    return Json::parse(
        choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>())["city"];
  };
  EXPECT_EQ(arguments(typed), "7");
  EXPECT_EQ(arguments(R"("tools": [{"type": "function", "function": {"name": "weather"}}])"), 7);
}

TEST_F(Chats, AConstraintOfToolsIsTheBackends) {
  backend_.facts_.chat_template += " arguments";
  const auto built = [&] { return backend_.last_constraint(); };
  ASSERT_EQ(post("{" + hello + ", " + weather + R"(, "tool_choice": "required"})").status, 200);
  EXPECT_NE(built().texts[0].find("weather"), std::string::npos);
  // What constraints refuse: any arguments for one that is not strict, an error for one that is.
  const auto odd = [](const char* strict) {
    return std::string(R"("tool_choice": "required", "tools": [{"type": "function", "function":
        {"name": "f", "strict": )") +
           strict + R"(, "parameters": {"properties": {"x":
        {"type": "array", "uniqueItems": true}}}}}])";
  };
  EXPECT_EQ(post("{" + hello + ", " + odd("false") + "}").status, 200);
  EXPECT_EQ(built().texts[0].find("uniqueItems"), std::string::npos);
  const Reply refused = post("{" + hello + ", " + odd("true") + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "tools");
}

TEST_F(Chats, AFormOfCallsThatIsNotKnownServesDemandedCallsAlone) {
  ASSERT_EQ(server::answer_form(backend_.facts_.chat_template).tools, server::ToolForm::none);
  for (const char* const more : {"", R"(, "tool_choice": "auto")", R"(, "stream": true)"}) {
    const Reply reply = post("{" + hello + ", " + weather + more + "}");
    EXPECT_EQ(reply.status, 400);
    const Json error = reply.json()["error"];
    EXPECT_EQ(error["param"], "tools");
    const std::string message = error["message"];
    EXPECT_NE(message.find("not known"), std::string::npos) << message;
    EXPECT_NE(message.find("tool_choice"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_EQ(post("{" + hello + ", " + weather + R"(, "tool_choice": "none"})").status, 200);
  EXPECT_EQ(post("{\"model\": \"fake\", \"max_tokens\": 50, " + hello +
                     R"(, "tools": [{"name": "weather", "input_schema": {"type": "object"}}]})",
                 "/v1/messages")
                .status,
            400);
  backend_.answer = R"({"name": "weather", "parameters": {"city": "Rome"}})";
  for (const char* const choice :
       {R"("required")", R"({"type": "function", "function": {"name": "weather"}})"}) {
    const Json answer =
        post("{" + hello + ", " + weather + R"(, "tool_choice": )" + choice + "}").json();
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls") << choice;
    const Json& function = answer["choices"][0]["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "weather");
    EXPECT_EQ(Json::parse(function["arguments"].get<std::string>())["city"], "Rome");
    // The backend is held to just such texts.
    const constraints::ConstraintSource source = backend_.last_constraint();
    EXPECT_EQ(source.kind, constraints::ConstraintSource::Kind::grammar);
    EXPECT_NE(source.texts[0].find("parameters"), std::string::npos);
  }
}

TEST_F(Chats, ReasoningIsCountedByItsTokens) {
  backend_.answer = "<think>Hm.</think>So";  // a token a byte
  backend_.facts_.chat_template += "</think>";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{200}}) {
    backend_.piece = piece;
    const auto usage = [](const Json& json) {
      return json["usage"]["completion_tokens_details"]["reasoning_tokens"];
    };
    const Json whole = post("{" + hello + "}").json();
    EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "Hm.");
    EXPECT_EQ(usage(whole), 18) << piece;
    const std::vector<std::string> events =
        post("{" + hello + R"(, "stream": true, "stream_options": {"include_usage": true}})")
            .events();
    EXPECT_EQ(usage(Json::parse(events[events.size() - 2])), 18) << piece;
  }
  backend_.answer = "<think>Hm";
  EXPECT_EQ(
      post("{" + hello + "}").json()["usage"]["completion_tokens_details"]["reasoning_tokens"], 9);
  backend_.answer = "<think></think>So";
  EXPECT_EQ(
      post("{" + hello + "}").json()["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(Chats, AModelWithoutToolsSaysSo) {
  backend_.facts_.chat_template = "{{ messages }}";
  const Reply reply = post("{" + hello + ", " + weather + "}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "tools");
  backend_.facts_.chat_template = "";
  EXPECT_EQ(post("{" + hello + "}").json()["error"]["param"], "messages");
}

TEST_F(Chats, LogprobsComeWithTheirTokens) {
  const std::string asks = "{" + hello + R"(, "logprobs": true, "top_logprobs": 1)";
  const Json whole = post(asks + "}").json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(whole.size(), 12u);
  EXPECT_EQ(whole[0], Json::parse(R"({"token": "H", "logprob": -0.5, "bytes": [72],
      "top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]}]})"));
  std::string text;
  const std::vector<std::string> events = post(asks + R"(, "stream": true})").events();
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json one = Json::parse(events[i])["choices"][0];
    if (!one["logprobs"].is_object()) continue;
    for (const Json& token : one["logprobs"]["content"]) text += token["token"];
  }
  EXPECT_EQ(text, "Hello, world");
}

TEST_F(Chats, ResponsesAreChatsInOtherWords) {
  const std::string body = R"({"model": "fake", "input": "Hello", "instructions": "Be brief.")";
  const Json json = post(body + "}", "/v1/responses").json();
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Hello, world");
  EXPECT_EQ(json["usage"]["output_tokens"], 12);
  EXPECT_FALSE(json.contains("user"));  // which may be no null
  EXPECT_EQ(messages()[0]["role"], "system");
  const Reply stream = post(body + R"(, "stream": true})", "/v1/responses");
  std::string text;
  for (const std::string& event : stream.events()) {
    const Json one = Json::parse(event);
    if (one["type"] == "response.output_text.delta") text += one["delta"];
  }
  EXPECT_EQ(text, "Hello, world");
  EXPECT_NE(stream.body.find("event: response.completed\n"), std::string::npos);
  EXPECT_EQ(post(R"({"input": "x", "previous_response_id": "r"})", "/v1/responses")
                .json()["error"]["param"],
            "previous_response_id");
}

TEST_F(Chats, MessagesAreChatsInOtherWords) {
  const std::string body = "{\"model\": \"fake\", \"max_tokens\": 50, " + hello;
  const Json json = post(body + "}", "/v1/messages").json();
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["content"][0]["text"], "Hello, world");
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_EQ(json["usage"]["output_tokens"], 12);
  const Reply stream = post(body + R"(, "stream": true})", "/v1/messages");
  const std::vector<std::string> events = stream.events();
  const Json start = Json::parse(events.at(0));
  EXPECT_EQ(start["type"], "message_start");
  EXPECT_GT(start["message"]["usage"]["input_tokens"], 0);
  EXPECT_EQ(Json::parse(events.back())["type"], "message_stop");
  const Json count =
      post("{\"model\": \"fake\", " + hello + "}", "/v1/messages/count_tokens").json();
  EXPECT_EQ(count["input_tokens"], json["usage"]["input_tokens"]);
  const Json error = post("{" + hello + "}", "/v1/messages").json();
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "invalid_request_error");
}

TEST_F(Chats, WhatFailsMidwayEndsTheStreamInWords) {
  backend_.fails_with = "no room";
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    const Reply reply = post("{\"max_tokens\": 5, " + hello + R"(, "stream": true})", path);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["message"], "no room");
  }
}

}  // namespace
}  // namespace coppice::testing
