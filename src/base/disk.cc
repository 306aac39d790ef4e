#include "base/disk.h"

#include <limits>
#include <system_error>

namespace coppice {

namespace fs = std::filesystem;

std::int64_t free_of_disk(fs::path folder) {
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const std::uintmax_t free = fs::space(folder.empty() ? "." : folder, error).available;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  return error || free > static_cast<std::uintmax_t>(most) ? most : static_cast<std::int64_t>(free);
}

}  // namespace coppice
