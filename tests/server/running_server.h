// A server on a free port of this machine, for the length of a test.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace coppice::testing {

/// Small ones, but for time, of which a busy machine may take any.
inline server::HttpLimits small_limits() {
  server::HttpLimits limits;
  limits.body_bytes = std::size_t{1} << 20;
  limits.header_seconds = limits.body_seconds = limits.idle_seconds = limits.write_seconds = 60.0;
  return limits;
}

inline server::ServiceOptions fake_service() {
  server::ServiceOptions options;
  options.defaults.model = "fake";
  options.defaults.options.sampling.temperature = 1.0;
  options.max_queue = 4;
  return options;
}

class RunningServer {
 public:
  RunningServer(server::Backend* backend, server::ServiceOptions options,
                const server::HttpLimits& limits)
      : log_(server::LogLevel::requests,
             [this](const std::string& line) {
               const std::lock_guard lock(mutex_);
               lines_.push_back(line);
             }),
        service_(std::move(options), log_),
        http_("127.0.0.1", 0, limits, service_),
        thread_([this] { http_.run(); }) {
    if (backend != nullptr) service_.open(*backend);
  }
  ~RunningServer() {
    if (!thread_.joinable()) return;
    http_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return http_.port(); }
  server::HttpServer& http() { return http_; }
  void open(server::Backend& backend) { service_.open(backend); }
  /// Waits for a drained server's end.
  void join() { thread_.join(); }
  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  server::Log log_;
  server::Service service_;
  server::HttpServer http_;
  std::thread thread_;
};

}  // namespace coppice::testing
