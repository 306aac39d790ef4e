#include "models/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace coppice {
namespace {

/// First number of a file; -1 for none ("max") or no file.
std::int64_t number_in(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::int64_t value = -1;
  return in >> value ? value : -1;
}

/// Value of a "name value" line; 0 for none.
std::int64_t entry_in(const std::filesystem::path& path, const std::string& name) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, name.size(), name) == 0) {
      return std::strtoll(line.c_str() + name.size(), nullptr, 10);
    }
  }
  return 0;
}

/// What one control group leaves; page cache that can be dropped counts as free.
std::int64_t left_in_group(const std::filesystem::path& group, const char* limit_name,
                           const char* usage_name, const char* cache_name) {
  const std::int64_t limit = number_in(group / limit_name);
  const std::int64_t usage = number_in(group / usage_name);
  if (limit < 0 || usage < 0) return INT64_MAX;
  const std::int64_t cache = entry_in(group / "memory.stat", cache_name);
  return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - cache));
}

}  // namespace

std::int64_t available_memory(const std::filesystem::path& root) {
  std::int64_t available = INT64_MAX;
  if (const auto kib = entry_in(root / "proc/meminfo", "MemAvailable:"); kib > 0) {
    available = kib * 1024;
  }
  const auto groups = root / "sys/fs/cgroup";
  available = std::min(available, left_in_group(groups / "memory", "memory.limit_in_bytes",
                                                "memory.usage_in_bytes", "total_inactive_file "));
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  std::string path;
  while (std::getline(in, line)) {
    if (line.compare(0, 3, "0::") == 0) path = line.substr(3);
  }
  // A container sees its own group at the top, other processes theirs below it.
  while (true) {
    const auto group = groups / path.substr(std::min<std::size_t>(path.size(), 1));
    available =
        std::min(available, left_in_group(group, "memory.max", "memory.current", "inactive_file "));
    if (path.size() <= 1) break;
    path.resize(path.find_last_of('/'));
  }
  return available;
}

}  // namespace coppice
