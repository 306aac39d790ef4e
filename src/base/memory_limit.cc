#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>

#include "base/error.h"

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

/// The files of one version of control groups.
struct GroupFiles {
  std::initializer_list<const char*> limits;  ///< the least counts
  const char* usage;
  const char* cache;  ///< of memory.stat: page cache that can be dropped, free to all intents
};

std::int64_t left_in_group(const std::filesystem::path& group, const GroupFiles& files) {
  std::int64_t limit = INT64_MAX;
  for (const char* name : files.limits) {
    if (const std::int64_t one = number_in(group / name); one >= 0) limit = std::min(limit, one);
  }
  const std::int64_t usage = number_in(group / files.usage);
  if (limit == INT64_MAX || usage < 0) return INT64_MAX;
  const std::int64_t cache = entry_in(group / "memory.stat", files.cache);
  return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - cache));
}

/// The least that a group and those above it, up to where they are mounted, leave. A container may
/// see its own group at the mount, other processes theirs below it, and a path from elsewhere leads
/// to nothing.
std::int64_t left_in_groups(const std::filesystem::path& mount, std::string path,
                            const GroupFiles& files) {
  std::int64_t left = INT64_MAX;
  if (path.find("/..") != std::string::npos) path.clear();  // above what this process may see
  while (true) {
    left = std::min(left, left_in_group(mount / path.substr(path.empty() ? 0 : 1), files));
    if (path.size() <= 1) return left;
    path.resize(path.find_last_of('/'));
  }
}

/// What the process's own limit on address space (ulimit -v) leaves.
std::int64_t left_of_address_space(const std::filesystem::path& root) {
  const std::int64_t limit = entry_in(root / "proc/self/limits", "Max address space ");
  const std::int64_t pages = number_in(root / "proc/self/statm");
  if (limit <= 0 || pages < 0) return INT64_MAX;
  return std::max<std::int64_t>(0, limit - pages * sysconf(_SC_PAGESIZE));
}

/// Whether the list "cpu,memory" names the controller of memory.
bool names_memory(const std::string& controllers) {
  return cat(",", controllers, ",").find(",memory,") != std::string::npos;
}

}  // namespace

std::int64_t available_memory(const std::filesystem::path& root) {
  std::int64_t available = INT64_MAX;
  if (const auto kib = entry_in(root / "proc/meminfo", "MemAvailable:"); kib > 0) {
    available = kib * 1024;
  }
  available = std::min(available, left_of_address_space(root));
  // Beyond memory.high a process is slowed down to a crawl, beyond memory.max killed.
  const GroupFiles first{
      {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file "};
  const GroupFiles second{{"memory.max", "memory.high"}, "memory.current", "inactive_file "};
  std::string first_path, second_path;
  // Lines are "number:controllers:path"; version 2 has none of the former two ("0::path").
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto controllers = line.find(':') + 1;
    const auto path = line.find(':', controllers);
    if (controllers == 0 || path == std::string::npos) continue;
    if (line.compare(0, 3, "0::") == 0) second_path = line.substr(path + 1);
    if (names_memory(line.substr(controllers, path - controllers))) {
      first_path = line.substr(path + 1);
    }
  }
  const auto groups = root / "sys/fs/cgroup";
  available = std::min(available, left_in_groups(groups / "memory", first_path, first));
  for (const char* mount : {"", "unified"}) {  // the latter where both versions are mounted
    available = std::min(available, left_in_groups(groups / mount, second_path, second));
  }
  return available;
}

}  // namespace coppice
