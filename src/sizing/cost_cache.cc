#include "sizing/cost_cache.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "models/gguf/gguf_file.h"
#include "sizing/constants.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "costs-";

// Size and time of last change: what make and rsync go by.
std::string stamp(const fs::path& file) {
  std::error_code ignored;
  const auto size = fs::file_size(file, ignored);
  const auto time = fs::last_write_time(file, ignored).time_since_epoch().count();
  return cat(file.filename().string(), ':', size, ':', time);
}

// The program or library that holds this code: one that is built anew may be faster.
std::string build() {
  Dl_info info{};
  fs::path file;
  if (dladdr(reinterpret_cast<const void*>(&build), &info) != 0 && info.dli_fname != nullptr) {
    file = info.dli_fname;
  }
  if (!file.is_absolute()) file = "/proc/self/exe";  // a program is named as it was called
  return cat("coppice ", stamp(file));
}

std::string files_of(const fs::path& folder) {
  if (is_gguf(folder)) return stamp(folder);
  std::vector<std::string> stamps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") stamps.push_back(stamp(entry.path()));
  }
  std::sort(stamps.begin(), stamps.end());
  std::ostringstream config;
  config << std::ifstream(folder / "config.json", std::ios::binary).rdbuf();
  std::string text = cat("config ", std::hash<std::string>()(config.str()));
  for (const std::string& one : stamps) text += " " + one;
  return text;
}

fs::path file_of(const fs::path& folder, const std::string& key) {
  std::ostringstream name;
  name << prefix << std::hex << std::hash<std::string>()(key) << ".json";
  return folder / name.str();
}

bool is_regular(const fs::path& file) {
  std::error_code ignored;
  return fs::symlink_status(file, ignored).type() == fs::file_type::regular;
}

// Ours for sure: named for what it holds.
bool is_table(const fs::path& file) {
  struct stat about = {};
  if (::lstat(file.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if (about.st_uid != ::geteuid()) return false;
  try {
    const auto table = read_cost_table(file, std::nullopt);
    return table && file_of(file.parent_path(), table->fingerprint) == file;
  } catch (const Error&) {
    return false;
  }
}

// `kept` may be as old as the others, by the clock of its disk.
void drop_oldest(const fs::path& folder, const fs::path& kept) {
  std::error_code ignored, error;
  std::vector<std::pair<fs::file_time_type, fs::path>> tables;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& file = entry->path();
    if (file == kept || !file.filename().string().starts_with(prefix)) continue;
    tables.emplace_back(fs::last_write_time(file, ignored), file);
  }
  if (tables.size() <= SizingConstants::most_tables) return;
  std::erase_if(tables, [](const auto& table) { return !is_table(table.second); });
  std::sort(tables.begin(), tables.end());
  for (std::size_t i = 0; i + SizingConstants::most_tables < tables.size(); ++i) {
    fs::remove(tables[i].second, ignored);
  }
}

}  // namespace

fs::path cost_cache_folder() {
  const auto absolute = [](const char* variable) {
    const char* value = std::getenv(variable);
    const fs::path path = value == nullptr ? "" : value;
    return path.is_absolute() ? path : fs::path();
  };
  if (const fs::path cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache / "coppice";
  if (const fs::path home = absolute("HOME"); !home.empty()) return home / ".cache" / "coppice";
  return {};
}

CostTable table_to_keep(const CostTable& kept, const CostTable& measured) {
  if (kept.doubts + 1 >= SizingConstants::most_doubts) return measured;
  const auto least = [](const PassCosts& a, const PassCosts& b) {
    if (a.points().empty() || a.prefix_short() != b.prefix_short() ||
        a.prefix_long() != b.prefix_long()) {
      return b;
    }
    std::map<std::int32_t, PassCosts::Point> points;
    for (const PassCosts* costs : {&a, &b}) {
      for (const PassCosts::Point& p : costs->points()) {
        PassCosts::Point& least_point = points.emplace(p.rows, p).first->second;
        least_point.seconds_short = std::min(least_point.seconds_short, p.seconds_short);
        least_point.seconds_long = std::min(least_point.seconds_long, p.seconds_long);
      }
    }
    std::vector<PassCosts::Point> sorted;
    for (const auto& [rows, point] : points) sorted.push_back(point);
    return PassCosts(a.prefix_short(), a.prefix_long(), std::move(sorted));
  };
  CostTable table = measured;
  table.target = least(kept.target, measured.target);
  table.draft = least(kept.draft, measured.draft);
  table.first_draft = least(kept.first_draft, measured.first_draft);
  table.doubts = kept.doubts + 1;
  return table;
}

std::string cost_cache_key(const EngineOptions& options, const LoadedModel& target,
                           const LoadedModel& draft) {
  const auto one = [](const fs::path& folder, const LoadedModel& model) {
    return cat(files_of(folder), ", ", model.model->max_positions(), " positions, ",
               model.pool->layout().slots(), " slots");
  };
  return cat(build(), "; ", cost_fingerprint(*target.model, *draft.model), "; trees of ",
             options.max_tree_size, ", passes of ", target.model->options().max_logit_rows,
             "; target ", one(options.target, target), "; draft ", one(options.draft, draft));
}

std::optional<CostTable> cached_costs(const fs::path& folder, const std::string& key) {
  if (folder.empty() || !is_regular(file_of(folder, key))) return std::nullopt;
  try {
    return read_cost_table(file_of(folder, key), key);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void cache_costs(const fs::path& folder, const std::string& key, CostTable table) {
  if (folder.empty()) return;
  const fs::path file = file_of(folder, key);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return;
  table.fingerprint = key;
  try {
    write_own_file(file, text_of(table));
  } catch (const Error&) {
    return;
  }
  drop_oldest(folder, file);
}

}  // namespace coppice
