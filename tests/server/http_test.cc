// HTTP over a real socket: limits, slow and broken clients, and those who leave.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client.h"
#include "fake_backend.h"
#include "running_server.h"

namespace coppice::testing {
namespace {

const std::string completion = R"({"prompt": "Once", "max_tokens": 100})";
const std::string streamed = R"({"prompt": "Once", "max_tokens": 100, "stream": true})";

class Http : public ::testing::Test {
 protected:
  Reply post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return ask(server_.port(), "POST", path, body, headers);
  }

  FakeBackend backend_;
  RunningServer server_{&backend_, fake_service(), small_limits()};
};

TEST_F(Http, OneConnectionServesManyRequests) {
  Client client(server_.port());
  for (int i = 0; i < 3; ++i) {
    client.send(request_text("POST", "/v1/completions", completion));
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json()["choices"][0]["text"], backend_.answer);
    EXPECT_EQ(reply.headers.at("connection"), "keep-alive");
    client.send(request_text("POST", "/v1/completions", streamed));
    const Reply stream = client.read();
    EXPECT_TRUE(stream.whole);
    EXPECT_EQ(stream.events().back(), "[DONE]");
  }
}

TEST_F(Http, RequestsThatCameAtOnceAreAnsweredInOrder) {
  Client client(server_.port());
  client.send(request_text("GET", "/v1/models") + request_text("GET", "/nowhere") +
              request_text("POST", "/v1/completions", completion) + request_text("GET", "/health"));
  for (const int status : {200, 404, 200, 200}) EXPECT_EQ(client.read().status, status);
}

TEST_F(Http, AnOldClientGetsItsStreamUntilTheEnd) {
  Client client(server_.port());
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(streamed.size()) + "\r\n\r\n" + streamed);
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST_F(Http, AClientThatAsksFirstIsToldToGoOn) {
  Client client(server_.port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(completion.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send(completion);
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(Http, WhatIsNoHttpIsRefused) {
  for (const char* bytes : {"nonsense\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n",
                            "GET  /health HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
                            "GET /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                            "POST /tokenize HTTP/1.1\r\nContent-Length: 4\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    Client client(server_.port());
    client.send(bytes);
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error") << bytes;
    EXPECT_TRUE(client.is_closed(20.0)) << bytes;
  }
  EXPECT_EQ(ask(server_.port(), "GET", "/health").status, 200);
}

TEST_F(Http, LimitsAreSaid) {
  EXPECT_EQ(post("/v1/completions", std::string((std::size_t{1} << 20) + 1, ' ')).status, 413);
  // Chunks say no length before.
  Client chunks(server_.port());
  chunks.send(request_text("POST", "/v1/completions", "", "Transfer-Encoding: chunked\r\n"));
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 20 && chunks.send(chunk); ++i) {
  }
  EXPECT_EQ(chunks.read().status, 413);
  const std::string long_header = "X-Long: " + std::string(40000, 'a') + "\r\n";
  EXPECT_EQ(ask(server_.port(), "GET", "/health", "", long_header).status, 431);
}

TEST_F(Http, SlowHeadersAndBodiesAreGivenUp) {
  server::HttpLimits limits = small_limits();
  limits.header_seconds = limits.body_seconds = limits.idle_seconds = 0.3;
  RunningServer server(&backend_, fake_service(), limits);
  Client header(server.port());
  header.send("GET /health HTTP/1.1\r\nHost:");
  EXPECT_EQ(header.read().status, 408);
  Client body(server.port());
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(body.read().status, 408);
  // Byte by byte, which renews no deadline.
  Client drops(server.port());
  bool open = true;
  for (int i = 0; i < 1000 && open; ++i) {
    open = drops.send(i == 0 ? "GET /health HTTP/1.1\r\nX: " : "a");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open = open && !drops.is_closed(0.0);
  }
  EXPECT_FALSE(open);
  Client silent(server.port());
  EXPECT_TRUE(silent.is_closed(20.0));
}

TEST_F(Http, AClientThatLeavesFreesItsText) {
  backend_.hold(true);
  for (const std::string& body : {completion, streamed}) {
    Client client(server_.port());
    client.send(request_text("POST", "/v1/completions", body));
    ASSERT_TRUE(backend_.wait_for_running(1));
    client.close();
    EXPECT_TRUE(backend_.wait_for_running(0)) << body;
  }
  EXPECT_EQ(backend_.cancelled(), 2);
}

// The text that a client left must not take the place of another.
TEST_F(Http, AClientThatSendsMoreMeanwhileIsSeenToLeave) {
  backend_.hold(true);
  Client client(server_.port());
  client.send(request_text("POST", "/v1/completions", completion));
  ASSERT_TRUE(backend_.wait_for_running(1));
  client.send(request_text("GET", "/health"));
  client.close();
  EXPECT_TRUE(backend_.wait_for_running(0));
}

TEST_F(Http, AReaderThatStopsIsCutOff) {
  server::HttpLimits limits = small_limits();
  limits.write_seconds = 1.0;
  RunningServer server(&backend_, fake_service(), limits);
  backend_.answer = std::string(std::size_t{24} << 20, 'a');
  backend_.piece = std::size_t{1} << 18;
  Client client(server.port());
  client.send(request_text("POST", "/v1/completions",
                           R"({"prompt": "Once", "max_tokens": 100000000, "stream": true})"));
  ASSERT_TRUE(backend_.wait_for_running(1));
  EXPECT_TRUE(backend_.wait_for_running(0));
  EXPECT_FALSE(client.read().whole);
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 200);
}

TEST_F(Http, ManyIdleStreamsAreHeld) {
  backend_.facts_.parallel = 1000;
  backend_.hold(true);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server_.port()));
    ASSERT_TRUE(clients.back()->send(request_text("POST", "/v1/completions", streamed)));
  }
  ASSERT_TRUE(backend_.wait_for_running(200));
  EXPECT_EQ(ask(server_.port(), "GET", "/health").status, 200);
  backend_.hold(false);
  for (const auto& client : clients) {
    const Reply reply = client->read();
    EXPECT_TRUE(reply.whole);
    EXPECT_EQ(reply.events().back(), "[DONE]");
  }
}

TEST_F(Http, DrainingLetsTextsEndAndTakesNoMore) {
  backend_.hold(true);
  Client idle(server_.port()), busy(server_.port());
  idle.send(request_text("GET", "/health"));
  EXPECT_EQ(idle.read().status, 200);
  busy.send(request_text("POST", "/v1/completions", streamed));
  ASSERT_TRUE(backend_.wait_for_running(1));
  EXPECT_NE(busy.read_some().find("data: "), std::string::npos);
  server_.http().drain();
  EXPECT_TRUE(idle.is_closed(20.0));
  EXPECT_EQ(ask(server_.port(), "GET", "/health").status, 0);
  backend_.hold(false);
  const Reply reply = busy.read();
  EXPECT_TRUE(reply.whole);
  EXPECT_EQ(reply.events().back(), "[DONE]");
  server_.join();
}

TEST_F(Http, StoppingDropsTexts) {
  backend_.hold(true);
  Client busy(server_.port());
  busy.send(request_text("POST", "/v1/completions", streamed));
  ASSERT_TRUE(backend_.wait_for_running(1));
  server_.http().stop();
  server_.join();
  EXPECT_TRUE(backend_.wait_for_running(0));
  EXPECT_EQ(backend_.cancelled(), 1);
}

TEST_F(Http, RequestsHaveIds) {
  const Reply own = ask(server_.port(), "GET", "/health", "", "X-Request-Id: mine-1\r\n");
  EXPECT_EQ(own.headers.at("x-request-id"), "mine-1");
  const Reply odd = ask(server_.port(), "GET", "/health", "", "X-Request-Id: a b\"c\r\n");
  EXPECT_EQ(odd.headers.at("x-request-id").substr(0, 4), "req_");
  ask(server_.port(), "GET", "/health", "", "X-Request-Id: last\r\nConnection: close\r\n");
  server_.http().stop();
  server_.join();
  std::vector<std::string> ids;
  for (const std::string& line : server_.log()) {
    const nlohmann::json json = nlohmann::json::parse(line);
    ids.push_back(json["id"]);
    EXPECT_TRUE(json.contains("time"));
    EXPECT_EQ(json["path"], "/health");
  }
  ASSERT_EQ(ids.size(), 3u) << "a line for each";
  EXPECT_EQ(ids.front(), "mine-1");
  EXPECT_EQ(ids.back(), "last");
}

TEST_F(Http, AHeadHasNoBody) {
  Client client(server_.port());
  client.send(request_text("HEAD", "/health") + request_text("GET", "/health"));
  const std::string bytes = client.read_some();
  const std::size_t second = bytes.find("HTTP/1.1", 1);
  ASSERT_NE(second, std::string::npos) << bytes;
  EXPECT_EQ(bytes.substr(second - 4, 4), "\r\n\r\n");
}

}  // namespace
}  // namespace coppice::testing
