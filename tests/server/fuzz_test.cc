// Damaged requests by the thousand: each is answered or closed, and the server goes on.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "client.h"
#include "fake_backend.h"
#include "running_server.h"
#include "server/api/api_error.h"
#include "server/api/chat.h"
#include "server/api/completions.h"
#include "server/api/translated.h"

namespace coppice::testing {
namespace {

const std::vector<std::string>& bodies() {
  static const std::vector<std::string> all = {
      R"({"prompt": "Once", "max_tokens": 5, "stream": true, "stop": ["a"], "logprobs": 2})",
      R"({"prompt": [[1, 2], "x"], "n": 2, "seed": 18446744073709551615, "logit_bias": {"5": 1}})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "\u00e9\ud83d\ude00"}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
          "tool_choice": "auto", "response_format": {"type": "json_object"},
          "speculation": {"policy": "chain", "size": 3}})",
      R"({"model": "fake", "max_tokens": 9, "system": [{"type": "text", "text": "a"}], "messages":
          [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}],
          "thinking": {"type": "enabled", "budget_tokens": 1024}})",
      R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
          {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
          "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}})",
      R"({"content": "Hi", "with_pieces": true, "tokens": [1, 2, 3]})"};
  return all;
}

/// A few bytes changed, doubled, dropped, or swapped for what parsers stumble over.
std::string damaged(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> odd = {
      "null", "-1",  "1e400", "[[[[", "{}",   "\"\"", "\\ud800",
      "\xff", "\0x", "true",  ":",    "\r\n", "%00",  "99999999999999999999"};
  const auto below = [&](std::size_t count) { return random() % count; };
  for (std::size_t changes = 1 + below(4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size()), length = below(12);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text.replace(at, length, odd[below(odd.size())]);
        break;
      default:
        text.insert(at, odd[below(odd.size())]);
    }
  }
  return text;
}

TEST(ServerFuzz, DamagedBodiesAreReadOrRefused) {
  FakeBackend backend;
  backend.facts_.chat_template += " arguments";  // so that it shows a form of calls
  const server::ApiDefaults defaults = fake_service().defaults;
  std::mt19937_64 random(1);
  int read = 0, refused = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::string body = damaged(bodies()[random() % bodies().size()], random);
    const auto attempt = [&](const auto& task) {
      try {
        task();
        ++read;
      } catch (const server::ApiError& error) {
        ++refused;
        EXPECT_GE(error.status(), 400);
        EXPECT_LT(error.status(), 500);
      }
    };
    attempt([&] { server::read_completion(body, backend, defaults); });
    attempt([&] { server::read_chat(server::parse_object(body), backend, defaults); });
    attempt([&] { server::read_response(server::parse_object(body), backend, defaults); });
    attempt([&] { server::read_message(server::parse_object(body), backend, defaults); });
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(ServerFuzz, DamagedRequestsLeaveTheServerWell) {
  FakeBackend backend;
  backend.facts_.chat_template += " arguments";  // so that it shows a form of calls
  server::HttpLimits limits = small_limits();
  limits.header_seconds = limits.body_seconds = 0.05;
  RunningServer server(&backend, fake_service(), limits);
  std::mt19937_64 random(2);
  const std::vector<std::string> paths = {"/v1/completions", "/v1/chat/completions",
                                          "/v1/responses",   "/v1/messages",
                                          "/tokenize",       "/v1/models/fake"};
  int answered = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string whole =
        request_text("POST", paths[random() % paths.size()], bodies()[random() % bodies().size()]);
    Client client(server.port());
    client.send(damaged(whole, random));
    // Some leave at once.
    if (random() % 4 == 0) continue;
    const Reply reply = client.read(5.0);
    answered += reply.status != 0;
    EXPECT_TRUE(reply.status == 0 || (reply.status >= 200 && reply.status < 500)) << reply.status;
  }
  EXPECT_GT(answered, 500);
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 200);
  EXPECT_TRUE(backend.wait_for_running(0));
}

}  // namespace
}  // namespace coppice::testing
