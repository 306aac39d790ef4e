#include "study/study_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* lock_name = "lock";
constexpr const char* settings_name = "study.json";
constexpr std::uintmax_t largest_settings = std::uintmax_t{16} << 20;

// A run that was killed before it wrote its settings leaves no more than this.
bool is_of_a_start(const fs::path& name) { return name == lock_name || is_unfinished(name); }

void refuse_other_content(const fs::path& path) {
  if (fs::exists(path / settings_name)) return;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (is_of_a_start(entry.path().filename())) continue;
    throw_usage(cat("--out ", quote(path.string()), ": the folder holds ",
                    quote(entry.path().filename().string()),
                    " and no study; name a new or empty folder"));
  }
}

/// "max_new_tokens: it was 64, now 128", for the first difference.
std::string difference(const nlohmann::json& before, const nlohmann::json& now) {
  for (const auto& [name, value] : now.items()) {
    if (!before.contains(name)) return cat(name, ": it was not set, now ", shown(value));
    if (before[name] == value) continue;
    return cat(name, ": it was ", shown(before[name]), ", now ", shown(value));
  }
  for (const auto& [name, value] : before.items()) {
    if (!now.contains(name)) return cat(name, ": it was ", shown(value), ", now not set");
  }
  return {};
}

}  // namespace

StudyFolder::StudyFolder(const fs::path& path) : path_(path) {
  try {
    fs::create_directories(path_);
    refuse_other_content(path_);
  } catch (const fs::filesystem_error& error) {
    throw_failure(cat("--out ", quote(path_.string()), ": ", error.code().message(),
                      "; name a folder that can be written"));
  }
  lock_ = open_file(path_ / lock_name, O_RDWR | O_CREAT);
  int locked = 0;
  do {
    locked = ::flock(lock_.get(), LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked == 0) return;
  if (errno != EWOULDBLOCK) {
    throw_failure(cat((path_ / lock_name).string(), ": cannot be locked: ", std::strerror(errno),
                      "; use a local disk"));
  }
  throw_usage(cat("--out ", quote(path_.string()),
                  ": another run is working in it; wait for its end or name another folder"));
}

void StudyFolder::settle(const Json& settings) {
  const fs::path file = path_ / settings_name;
  std::error_code ignored;
  // Settings without results bind nobody: what was wrong with them may be mended.
  const auto results = fs::file_size(path_ / results_name, ignored);
  const bool empty = ignored || results == 0;
  continued_ = fs::exists(file, ignored) && !empty;
  if (!continued_) {
    write_file(file, settings.dump(1) + "\n");
    return;
  }
  const std::string text = read_file(file, "study settings", largest_settings);
  const std::string changed =
      difference(*parse_json_object(text, file.string()), nlohmann::json(settings));
  if (!changed.empty()) {
    throw_usage(cat("--out ", quote(path_.string()), " holds another study (", changed,
                    "); start with the settings it was begun with, or name another folder"));
  }
}

}  // namespace coppice::study
