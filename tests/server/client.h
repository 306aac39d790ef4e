// A client over a real socket, which can also misbehave.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::testing {

struct Reply {
  int status = 0;                              ///< 0: there was none
  std::map<std::string, std::string> headers;  ///< names in small letters
  std::string body;                            ///< chunks joined
  bool whole = false;                          ///< it came to its end

  /// Null if the body is no JSON.
  nlohmann::json json() const {
    const nlohmann::json parsed = nlohmann::json::parse(body, nullptr, false);
    return parsed.is_discarded() ? nlohmann::json() : parsed;
  }
  /// The data of a stream's events.
  std::vector<std::string> events() const;
};

class Client {
 public:
  explicit Client(std::uint16_t port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// False once the server has closed.
  bool send(std::string_view bytes);
  /// Reads one answer; gives up after `seconds`.
  Reply read(double seconds = 120.0);
  /// Reads until something of the body has come.
  std::string read_some(double seconds = 120.0);
  /// Whether the server closes within `seconds`; what it sends before is dropped.
  bool is_closed(double seconds);
  void close();

 private:
  bool more(double seconds);

  int socket_ = -1;
  std::string buffer_;
};

std::string request_text(std::string_view method, std::string_view path, std::string_view body = {},
                         std::string_view headers = {});
/// One request on a connection of its own.
Reply ask(std::uint16_t port, std::string_view method, std::string_view path,
          std::string_view body = {}, std::string_view headers = {});

}  // namespace coppice::testing
