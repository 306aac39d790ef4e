// Lines of JSON about what the server does.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace coppice::server {

enum class LogLevel { none, requests, prompts };

class Log {
 public:
  Log(LogLevel level, std::function<void(const std::string& line)> put)
      : level_(level), put_(std::move(put)) {}
  bool requests() const { return level_ != LogLevel::none; }
  bool prompts() const { return level_ == LogLevel::prompts; }
  /// Adds the time and `what` in front. From any thread.
  void write(const char* what, const nlohmann::ordered_json& fields);

 private:
  LogLevel level_;
  std::mutex mutex_;
  std::function<void(const std::string& line)> put_;
};

}  // namespace coppice::server
