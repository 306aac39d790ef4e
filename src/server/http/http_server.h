// HTTP/1.1 over TCP, on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/http/exchange.h"

namespace coppice::server {

class HttpServer {
 public:
  /// Listens at once. `host` is an address or a name; port 0: any that is free. Throws
  /// Error(failure) if it cannot.
  HttpServer(const std::string& host, std::uint16_t port, const HttpLimits& limits,
             HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;

  /// Serves on this thread until drain() has let the last answer out, or stop().
  void run();
  /// Has SIGTERM and SIGINT drain, and a second one stop. `told` hears of each. From any thread.
  void watch_signals(std::function<void(bool first)> told);
  /// Accepts nobody from now on and lets answers under way be finished. From any thread.
  void drain();
  /// Drops all connections. From any thread.
  void stop();

 private:
  class Listener;
  class Connection;
  class Answer;
  std::shared_ptr<Listener> listener_;
};

}  // namespace coppice::server
