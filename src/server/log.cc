#include "server/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "server/api/json.h"

namespace coppice::server {
namespace {

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t whole = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char date[24], text[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(milliseconds));
  return text;
}

}  // namespace

void Log::write(const char* what, const nlohmann::ordered_json& fields) {
  Json line = {{"time", time_now()}, {"event", what}};
  for (const auto& [name, value] : fields.items()) line[name] = value;
  const std::lock_guard lock(mutex_);
  put_(to_text(line) + "\n");
}

}  // namespace coppice::server
