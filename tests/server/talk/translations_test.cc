// Requests and answers of the Responses and Messages APIs. scripts/check-server-shapes holds
// answers to the clients' own types.
#include <gtest/gtest.h>

#include <functional>

#include "fuzz/mutator.h"
#include "server/talk/messages.h"
#include "server/talk/responses.h"

namespace coppice::server_test {
namespace {

using server::BadRequest;
using server::Json;
using server::MessagesStream;
using server::NamedEvent;
using server::ResponsesStream;

Json messages(const char* request) {
  return server::chat_request_of_messages(Json::parse(request));
}
Json responses(const char* request) {
  return server::chat_request_of_responses(Json::parse(request));
}

struct Refusal {
  const char *request, *param, *message;
};

void expect_refused(Json (*translate)(const char*), const std::vector<Refusal>& cases) {
  for (const auto& [request, param, message] : cases) {
    try {
      translate(request);
      ADD_FAILURE() << request << " is not refused";
    } catch (const BadRequest& error) {
      EXPECT_EQ(error.param, param) << request;
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(Messages, RequestsBecomeChat) {
  EXPECT_EQ(
      messages(
          R"({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]})"),
      Json::parse(
          R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "model": "m"})"));
  EXPECT_EQ(
      messages(R"({"model": "m", "max_tokens": 5, "stream": true, "temperature": 0.5, "top_k": 3,
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "short"}],
        "stop_sequences": ["END"], "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "w", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
          {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
          {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "I look"}, {"type": "tool_use", "id": "t1", "name": "w", "input": {"c": "Z"}}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "lost"}, {"type": "text", "text": "So?"}]},
          {"role": "assistant", "content": "It"}]})"),
      Json::parse(
          R"({"messages": [{"role": "system", "content": "Be\nshort"}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "I look", "reasoning_content": "hm",
           "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "w", "arguments": "{\"c\":\"Z\"}"}}]},
          {"role": "tool", "tool_call_id": "t1", "content": "rain"},
          {"role": "tool", "tool_call_id": "t2", "content": "Error: lost"},
          {"role": "user", "content": "So?"}, {"role": "assistant", "content": "It"}],
        "max_tokens": 5, "model": "m", "temperature": 0.5, "top_k": 3, "stream": true,
        "stream_options": {"include_usage": true}, "stop": ["END"], "user": "u",
        "tools": [{"type": "function", "function": {"name": "w", "description": "d", "parameters": {"type": "object"}}}],
        "tool_choice": "required", "parallel_tool_calls": false, "chat_template_kwargs": {"enable_thinking": true},
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}},
        "continue_final_message": true, "add_generation_prompt": false})"));
  const Json counted = server::chat_request_of_messages(
      Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})"), true);
  EXPECT_FALSE(counted.contains("max_tokens"));
}

TEST(Messages, WhatCannotBeDoneIsRefused) {
  expect_refused(
      messages,
      {{R"([])", "", "must be an object"},
       {R"({"messages": [{"role": "user", "content": "Hi"}]})", "max_tokens", "required"},
       {R"({"max_tokens": 0, "messages": [{"role": "user", "content": "Hi"}]})", "max_tokens",
        "at least 1"},
       {R"({"max_tokens": 1.5, "messages": [{"role": "user", "content": "Hi"}]})", "max_tokens",
        "integer"},
       {R"({"max_tokens": 1, "messages": []})", "messages", "at least one"},
       {R"({"max_tokens": 1, "mesages": []})", "mesages", "not permitted"},
       {R"({"max_tokens": 1, "messages": [{"role": "robot", "content": "Hi"}]})", "messages.0.role",
        "one of"},
       {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
        "messages.0.content.0", "image"},
       {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "bash_20250124", "name": "bash"}]})",
        "tools.0.type", "define your own"},
       {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "mcp_servers": []})",
        "mcp_servers", "not permitted"}});
}

TEST(Responses, RequestsBecomeChat) {
  EXPECT_EQ(responses(R"({"model": "m", "input": "Hi"})"),
            Json::parse(R"({"messages": [{"role": "user", "content": "Hi"}], "model": "m"})"));
  EXPECT_EQ(
      responses(
          R"({"model": "m", "instructions": "Be short", "max_output_tokens": 9, "store": false, "stream": true,
        "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": true}, "verbosity": "medium"},
        "tools": [{"type": "function", "name": "w", "parameters": {"type": "object"}, "strict": false},
                  {"type": "function", "name": "x"}],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "w"}]},
        "input": [{"role": "developer", "content": "You"},
          {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
          {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
          {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
          {"type": "function_call", "call_id": "c1", "name": "w", "arguments": "{}"},
          {"type": "function_call", "call_id": "c2", "name": "x", "arguments": "{}"},
          {"type": "function_call_output", "call_id": "c1", "output": "rain"},
          {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]},
          {"role": "assistant", "content": "One"}, {"role": "assistant", "content": "Two"}]})"),
      Json::parse(
          R"({"messages": [{"role": "system", "content": "Be short"}, {"role": "system", "content": "You"},
          {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "I look", "reasoning_content": "hm", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "x", "arguments": "{}"}}]},
          {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "tool", "tool_call_id": "c2", "content": "sun"},
          {"role": "assistant", "content": "One"}, {"role": "assistant", "content": "Two"}],
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 9,
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}, "strict": false}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": true}},
        "reasoning_effort": "low"})"));
  EXPECT_EQ(
      responses(
          R"({"input": "Hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]})")
          ["top_logprobs"],
      2);
}

TEST(Responses, WhatCannotBeDoneIsRefused) {
  expect_refused(
      responses,
      {{R"("Hi")", "", "must be an object"},
       {R"({"model": "m"})", "input", "required"},
       {R"({"input": []})", "input", "at least one"},
       {R"({"input": "Hi", "previous_response_id": "r"})", "previous_response_id",
        "whole conversation"},
       {R"({"input": "Hi", "store": true})", "store", "not kept"},
       {R"({"input": "Hi", "conversation": "c"})", "conversation", "not kept"},
       {R"({"input": "Hi", "background": true})", "background", "not supported"},
       {R"({"input": "Hi", "truncation": "auto"})", "truncation", "disabled"},
       {R"({"input": "Hi", "tools": [{"type": "web_search"}]})", "tools.0.type", "function"},
       {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input.0", "not kept"},
       {R"({"input": [{"type": "mcp_call"}]})", "input.0", "mcp_call"},
       {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
        "input.0.content.0", "input_image"},
       {R"({"input": "Hi", "max_output_tokens": "9"})", "max_output_tokens", "integer"},
       {R"({"input": "Hi", "metadata": {"a": {}}})", "metadata.a", "string"},
       {R"({"input": "Hi", "user": {}})", "user", "string"},
       {R"({"input": "Hi", "include": ["file_search_call.results"]})", "include.0", "one of"},
       {R"({"input": "Hi", "temprature": 1})", "temprature", "not permitted"}});
}

Json chunk(const char* delta, const char* finish = "null", const char* more = "") {
  return Json::parse(
      std::string(
          R"({"id": "chatcmpl-7", "created": 5, "model": "m", "choices": [{"index": 0, "delta": )") +
      delta + R"(, "finish_reason": )" + finish + more + "}]}");
}

const Json usage = Json::parse(
    R"({"id": "chatcmpl-7", "created": 5, "model": "m", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5,
        "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 4}}})");

std::vector<Json> long_answer() {
  return {
      chunk(R"({"role": "assistant", "content": ""})"),
      chunk(R"({"reasoning_content": "H"})"),
      chunk(R"({"reasoning_content": "m"})"),
      chunk(R"({"content": "So"})"),
      chunk(R"({"content": ":"})"),
      chunk(
          R"({"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "w", "arguments": ""}}]})"),
      chunk(R"({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}]})"),
      chunk(
          R"({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "id": "c1", "type": "function",
                   "function": {"name": "x", "arguments": "{}"}}]})"),
      chunk("{}", "\"tool_calls\""),
      usage};
}

template <typename Stream>
std::vector<NamedEvent> events(Stream& stream, const std::vector<Json>& chunks) {
  std::vector<NamedEvent> all;
  const auto add = [&](std::vector<NamedEvent> some) {
    for (NamedEvent& event : some) {
      EXPECT_EQ(event.data["type"], event.name);
      all.push_back(std::move(event));
    }
  };
  for (const Json& one : chunks) add(stream.feed(one));
  add(stream.finish());
  EXPECT_TRUE(stream.finish().empty());
  EXPECT_TRUE(stream.feed(usage).empty());
  return all;
}

std::string names(const std::vector<NamedEvent>& all) {
  std::string joined;
  for (const NamedEvent& event : all) joined += event.name + " ";
  return joined;
}

TEST(Messages, StreamsBecomeEvents) {
  MessagesStream stream;
  const auto all = events(stream, long_answer());
  EXPECT_EQ(
      names(all),
      "message_start content_block_start content_block_delta content_block_delta "
      "content_block_stop "
      "content_block_start content_block_delta content_block_delta content_block_stop "
      "content_block_start content_block_delta content_block_delta content_block_stop "
      "content_block_start content_block_delta content_block_stop message_delta message_stop ");
  EXPECT_EQ(
      stream.message(),
      Json::parse(
          R"({"id": "msg_7", "type": "message", "role": "assistant", "model": "m", "content": [
              {"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "So:"},
              {"type": "tool_use", "id": "c0", "name": "w", "input": {"a": 1}},
              {"type": "tool_use", "id": "c1", "name": "x", "input": {}}],
              "stop_reason": "tool_use", "stop_sequence": null,
              "usage": {"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 5}})"));
  EXPECT_EQ(all[10].data, Json::parse(R"({"type": "content_block_delta", "index": 2,
      "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}})"));
  EXPECT_EQ(all[16].data["usage"]["output_tokens"], 5);

  MessagesStream stopped;
  events(stopped, {chunk(R"({"content": "a"})", "\"stop\"", R"(, "stop_reason": "END")")});
  EXPECT_EQ(stopped.message()["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped.message()["stop_sequence"], "END");

  // A call that the token limit cuts off is shown as it was written.
  MessagesStream cut;
  events(
      cut,
      {chunk(
          R"({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "w", "arguments": "{\"a"}}]})",
          "\"length\"")});
  EXPECT_EQ(cut.message()["content"], Json::parse(R"([{"type": "text", "text": "w {\"a"}])"));
  EXPECT_EQ(cut.message()["stop_reason"], "max_tokens");

  MessagesStream failed;
  EXPECT_EQ(names(events(failed, {chunk(R"({"content": "a"})"),
                                  Json::parse(R"({"error": {"message": "gone", "code": 500}})")})),
            "message_start content_block_start content_block_delta error ");
  EXPECT_EQ(server::messages_error(429, "full"),
            Json::parse(
                R"({"type": "error", "error": {"type": "rate_limit_error", "message": "full"}})"));
}

TEST(Responses, StreamsBecomeEvents) {
  ResponsesStream stream(Json::parse(R"({"input": "Hi", "temperature": 0.5})"));
  const auto all = events(stream, long_answer());
  const std::string text_item =
      "response.output_item.added response.content_part.added response.TEXT.delta "
      "response.TEXT.delta response.TEXT.done "
      "response.content_part.done response.output_item.done ";
  const auto with = [&](const char* text) {
    std::string item = text_item;
    for (std::size_t at = 0; (at = item.find("TEXT")) != std::string::npos;)
      item.replace(at, 4, text);
    return item;
  };
  EXPECT_EQ(
      names(all),
      "response.created response.in_progress " + with("reasoning_text") + with("output_text") +
          "response.output_item.added response.function_call_arguments.delta "
          "response.function_call_arguments.delta "
          "response.function_call_arguments.done response.output_item.done "
          "response.output_item.added response.function_call_arguments.delta "
          "response.function_call_arguments.done response.output_item.done response.completed ");
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].data["sequence_number"], i);
  const Json& response = stream.response();
  EXPECT_EQ(all.back().data["response"], response);
  EXPECT_EQ(response["id"], "resp_7");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["temperature"], 0.5);
  ASSERT_EQ(response["output"].size(), 4u);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hm");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "So:");
  EXPECT_EQ(response["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(response["output"][3]["call_id"], "c1");
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(response["usage"]["total_tokens"], 14);

  ResponsesStream cut(Json::object());
  EXPECT_NE(
      names(events(cut, {chunk(R"({"content": "a"})", "\"length\"")})).find("response.incomplete"),
      std::string::npos);
  EXPECT_EQ(cut.response()["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut.response()["output"][0]["status"], "incomplete");

  const Json error = Json::parse(R"({"error": {"message": "gone"}})");
  ResponsesStream failed(Json::object()), refused(Json::object());
  EXPECT_EQ(events(failed, {chunk(R"({"content": "a"})"), error})
                .back()
                .data["response"]["error"]["message"],
            "gone");
  EXPECT_EQ(names(events(refused, {error})), "error ");
}

TEST(Translations, WholeAnswersEqualStreams) {
  const Json completion =
      Json::parse(R"({"id": "chatcmpl-7", "created": 5, "model": "m", "choices": [{"index": 0,
    "message": {"role": "assistant", "content": "So:", "reasoning_content": "Hm", "tool_calls": [
      {"id": "c0", "type": "function", "function": {"name": "w", "arguments": "{\"a\":1}"}},
      {"id": "c1", "type": "function", "function": {"name": "x", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 4}}})");
  MessagesStream messages_stream;
  events(messages_stream, long_answer());
  EXPECT_EQ(server::MessagesStream().whole(completion), messages_stream.message());
  ResponsesStream responses_stream(Json::object());
  events(responses_stream, long_answer());
  EXPECT_EQ(server::ResponsesStream(Json::object()).whole(completion), responses_stream.response());
}

TEST(Translations, DamagedRequestsAreRefusedOrRead) {
  const std::string one =
      R"({"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "a"}], "tools": [{"name": "w",
    "input_schema": {}}], "tool_choice": {"type": "tool", "name": "w"}, "messages": [{"role": "user", "content": [{"type": "tool_result",
    "tool_use_id": "t", "content": "x"}]}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {}}]}]})";
  const std::string other =
      R"({"input": [{"type": "reasoning", "content": [{"text": "a"}]}, {"type": "function_call", "call_id": "c",
    "name": "w", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "x"}], "tools": [{"type": "function",
    "name": "w"}], "text": {"format": {"type": "text"}}, "include": [], "reasoning": {"effort": "low"}, "max_output_tokens": 3})";
  testing::Mutator mutator(11);
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    const bool is_messages = i % 2 == 0;
    const Json request = Json::parse(mutator.mutate(is_messages ? one : other), nullptr, false);
    if (request.is_discarded()) continue;
    try {
      if (is_messages) server::chat_request_of_messages(request);
      if (!is_messages) server::chat_request_of_responses(request);
    } catch (const BadRequest& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()), "");
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace coppice::server_test
