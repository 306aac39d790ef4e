// One HTTP request and its answer, as everything behind the socket sees them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path;  ///< as sent: nothing is decoded; without the query
  Headers headers;           ///< names in small letters, in the order sent
  std::string body;
  std::string id;      ///< of the client's X-Request-Id, or a new one
  std::string peer;    ///< the client's address
  double since = 0.0;  ///< now_seconds() when all of it had come

  /// The first header of this name, which is in small letters; nothing if there is none.
  std::optional<std::string_view> header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return std::nullopt;
  }
};

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers = {};
};

/// The answer to one request. All may be called from any thread; what is sent after the client has
/// left is dropped. One that is released without an answer answers 500.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void answer(HttpAnswer answer) = 0;
  /// Begins an answer whose length is not known. `body` is its first part.
  virtual void begin(HttpAnswer answer) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;

  /// Runs `gone` on the I/O thread, soon, if the client leaves before the answer has been sent.
  virtual void when_gone(std::function<void()> gone) = 0;
  /// Runs `task` on the I/O thread, in the order of calls from one thread.
  virtual void post(std::function<void()> task) = 0;
};

/// What a server does with requests. All run on the I/O thread and must be quick.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  /// Sees a request whose body has not been read; an answer refuses it.
  virtual std::optional<HttpAnswer> screen(const HttpRequest& request) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
  /// Adds headers that every answer has.
  virtual void complete(const HttpRequest& request, HttpAnswer& answer) const = 0;
  /// The answer to what is no request that may be handled: 400, 408, 413, 431, 500, 503.
  virtual HttpAnswer refusal(int status, std::string_view message) = 0;
  /// Hears of every answer: its status, the seconds since the header had come, and whether the
  /// client took all of it.
  virtual void answered(const HttpRequest& request, int status, double seconds, bool whole) = 0;
};

struct HttpLimits {
  std::size_t header_bytes = std::size_t{32} << 10;
  std::size_t body_bytes = std::size_t{16} << 20;
  std::size_t connections = 4096;  ///< further clients wait to be accepted
  std::size_t unsent_bytes =
      std::size_t{8} << 20;      ///< of an answer that is read too slowly; beyond, it is cut off
  double header_seconds = 15.0;  ///< from the first byte, or from the connection
  double body_seconds = 60.0;
  double idle_seconds = 75.0;   ///< between two requests of a connection
  double write_seconds = 30.0;  ///< in which some bytes of an answer must be taken
};

}  // namespace coppice::server
