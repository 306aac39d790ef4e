// Who may ask for what, and what is said to those who may not.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "client.h"
#include "fake_backend.h"
#include "running_server.h"

namespace coppice::testing {
namespace {

const std::string completion_body = R"({"prompt": "Once"})";

TEST(Service, KeysLetIn) {
  FakeBackend backend;
  server::ServiceOptions options = fake_service();
  options.keys = {"secret-one", "secret-two"};
  RunningServer server(&backend, options, small_limits());
  const auto status = [&](const std::string& path, const std::string& headers) {
    return ask(server.port(), "GET", path, "", headers).status;
  };
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Basic secret-one\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret-onesecret-one\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret-one\r\n"), 200);
  EXPECT_EQ(status("/v1/models", "authorization: bearer secret-two\r\n"), 200);
  EXPECT_EQ(status("/v1/models", "x-api-key: secret-two\r\n"), 200);
  EXPECT_EQ(status("/health", ""), 200);
  EXPECT_EQ(status("/metrics", ""), 401);
  // Before a body is read.
  Client client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n");
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.json()["error"]["code"], "invalid_api_key");
}

TEST(Service, PathsAndMethodsAreExact) {
  FakeBackend backend;
  RunningServer server(&backend, fake_service(), small_limits());
  const Reply page = ask(server.port(), "GET", "/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("</html>"), std::string::npos);
  for (const char* path : {"//", "//health", "/health/", "/../health", "/v1/./models", "/%68ealth",
                           "/V1/models", "/v1/completions/../models", "/health%00", "*"}) {
    EXPECT_EQ(ask(server.port(), "GET", path).status, 404) << path;
  }
  EXPECT_EQ(ask(server.port(), "GET", "/health?x=1").status, 200);
  EXPECT_EQ(ask(server.port(), "GET", "http://localhost/health").status, 200);
  const Reply wrong = ask(server.port(), "GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(ask(server.port(), "DELETE", "/v1/models").status, 405);
  EXPECT_EQ(ask(server.port(), "GET", "/v1/models/fake").json()["id"], "fake");
  EXPECT_EQ(ask(server.port(), "GET", "/v1/models/other").status, 404);
  // Without /v1.
  EXPECT_EQ(ask(server.port(), "GET", "/models/fake").json()["id"], "fake");
  EXPECT_EQ(ask(server.port(), "POST", "/completions", completion_body).status, 200);
  EXPECT_EQ(ask(server.port(), "POST", "/messages", "{}").json()["type"], "error");
  EXPECT_EQ(ask(server.port(), "GET", "/v1/health").status, 404);
  const Reply info = ask(server.port(), "GET", "/tokenizer_info");
  EXPECT_EQ(info.json()["chat_template"], backend.facts_.chat_template);
  EXPECT_TRUE(info.json().contains("eos_token"));
}

TEST(Service, PagesOfOthersMayNotAskUnlessTheyAreLetIn) {
  FakeBackend backend;
  const std::string foreign = "Origin: https://example.org\r\n";
  {
    server::ServiceOptions options = fake_service();
    options.local_host = "127.0.0.2";
    RunningServer server(&backend, options, small_limits());
    EXPECT_EQ(ask(server.port(), "GET", "/v1/models", "", foreign).status, 403);
    EXPECT_EQ(ask(server.port(), "GET", "/v1/models", "", "Origin: http://localhost\r\n").status,
              200);
    Client bound(server.port());
    bound.send("GET /v1/models HTTP/1.1\r\nHost: 127.0.0.2:80\r\n\r\n");
    EXPECT_EQ(bound.read().status, 200);
    Client rebound(server.port());
    rebound.send("GET /v1/models HTTP/1.1\r\nHost: evil.example:80\r\n\r\n");
    EXPECT_EQ(rebound.read().status, 403);
  }
  server::ServiceOptions options = fake_service();
  options.allow_origin = "https://example.org";
  RunningServer server(&backend, options, small_limits());
  const Reply reply = ask(server.port(), "GET", "/v1/models", "", foreign);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://example.org");
  const Reply flight = ask(server.port(), "OPTIONS", "/v1/chat/completions", "", foreign);
  EXPECT_EQ(flight.status, 204);
  EXPECT_NE(flight.headers.at("access-control-allow-headers").find("Authorization"),
            std::string::npos);
  EXPECT_EQ(ask(server.port(), "GET", "/v1/models", "", "Origin: https://other.org\r\n").status,
            403);
}

TEST(Service, AFullQueueSaysWhenToAskAgain) {
  FakeBackend backend;
  backend.facts_.parallel = 1;
  server::ServiceOptions options = fake_service();
  options.max_queue = 1;
  RunningServer server(&backend, options, small_limits());
  backend.hold(true);
  Client one(server.port()), two(server.port());
  one.send(request_text("POST", "/v1/completions", completion_body));
  ASSERT_TRUE(backend.wait_for_running(1));
  // Two more texts are one too many, whoever asks for them.
  EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", R"({"prompt": "x", "n": 2})").status,
            429);
  two.send(request_text("POST", "/v1/completions", completion_body));
  ASSERT_TRUE(backend.wait_for_running(2));
  const Reply reply = ask(server.port(), "POST", "/v1/completions", completion_body);
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  EXPECT_EQ(reply.json()["error"]["type"], "rate_limit_error");
  backend.hold(false);
  EXPECT_EQ(one.read().status, 200);
  EXPECT_EQ(two.read().status, 200);
  EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", completion_body).status, 200);
}

TEST(Service, ItSaysThatTheModelIsBeingLoaded) {
  FakeBackend backend;
  RunningServer server(nullptr, fake_service(), small_limits());
  for (const char* path : {"/health", "/v1/models"}) {
    const Reply reply = ask(server.port(), "GET", path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.json()["error"]["type"], "unavailable_error");
    EXPECT_TRUE(reply.headers.contains("retry-after"));
  }
  server.open(backend);
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 200);
}

TEST(Service, MetricsCountWhatWasWritten) {
  FakeBackend backend;
  RunningServer server(&backend, fake_service(), small_limits());
  for (int i = 0; i < 3; ++i) ask(server.port(), "POST", "/v1/completions", completion_body);
  ask(server.port(), "GET", "/somewhere/else");
  const std::string text = ask(server.port(), "GET", "/metrics").body;
  for (const char* line :
       {"coppice:http_requests_total{path=\"/v1/completions\",status=\"200\"} 3\n",
        "coppice:http_requests_total{path=\"other\",status=\"404\"} 1\n",
        "coppice:prompt_tokens_total 12\n", "coppice:generation_tokens_total 36\n",
        "coppice:request_success_total{finished_reason=\"eos\"} 3\n",
        "coppice:spec_decode_num_drafts_total 6\n",
        "coppice:spec_decode_num_accepted_tokens_total 12\n",
        "coppice:time_to_first_token_seconds_count 3\n", "coppice:num_requests_running 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace coppice::testing
