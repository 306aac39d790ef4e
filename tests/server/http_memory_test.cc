// The host's memory runs out at any allocation of the thread that serves connections.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "client.h"
#include "engine/failing_allocation.h"
#include "running_server.h"

namespace coppice::http_memory_test {
namespace {

using namespace testing;

const std::string first = "the first part of an answer, ", second = "and the second part of it";

/// Answers in parts; "/N" lets N allocations of its thread succeed, and the next one fail.
class Failing final : public server::HttpHandler {
 public:
  std::optional<server::HttpAnswer> screen(const server::HttpRequest&) override { return {}; }
  void handle(server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) override {
    spared = allocations_left > 0;
    allocations_left = std::stol(request.path.substr(1));
    exchange->begin({200, first, "text/plain"});
    exchange->post([exchange] {
      exchange->write(second);
      exchange->post([exchange] { exchange->end(); });
    });
  }
  void complete(const server::HttpRequest&, server::HttpAnswer&) const override {}
  server::HttpAnswer refusal(int status, std::string_view message) override {
    return {status, std::string(message), "text/plain"};
  }
  void answered(const server::HttpRequest&, int, double, bool) override {}

  std::atomic<bool> spared = false;  ///< not all of the last request's were used up
};

TEST(HttpMemory, WhatOneConnectionLacksTheOthersDoNot) {
  Failing handler;
  server::HttpServer server("127.0.0.1", 0, small_limits(), handler);
  std::thread thread([&server] { server.run(); });
  int failed = 0;
  for (long last = 0; !handler.spared && last < 1000; ++last) {
    SCOPED_TRACE(::testing::Message() << "allocation " << last);
    // No answer has a hole, and at most one is missing or lacks its end.
    int wanting = 0;
    for (const long left : {last, -1L, -1L}) {
      const Reply reply = ask(server.port(), "GET", "/" + std::to_string(left));
      if (reply.whole && reply.status == 200) {
        EXPECT_EQ(reply.body, first + second);
      } else {
        ++wanting;
      }
    }
    EXPECT_LE(wanting, 1);
    failed += wanting;
    if (HasFailure()) break;
  }
  EXPECT_GT(failed, 5);
  server.stop();
  thread.join();
}

}  // namespace
}  // namespace coppice::http_memory_test
