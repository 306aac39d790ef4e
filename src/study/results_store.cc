#include "study/results_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>

#include "base/error.h"

namespace coppice::study {

ResultsStore::ResultsStore(const std::filesystem::path& file) : file_(file) {
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(file, ignored);
  handle_ = open_file(file, O_RDWR | O_CREAT | O_APPEND);
  if (is_new) sync_folder(file.parent_path());
  const std::string text = read_file(file, "results", std::numeric_limits<std::uintmax_t>::max());
  std::string_view rest = text;
  for (std::int64_t number = 1;; ++number) {
    const auto end = rest.find('\n');
    if (end == rest.npos) break;
    lines_.push_back({number, std::string(rest.substr(0, end))});
    rest.remove_prefix(end + 1);
  }
  size_ = text.size() - rest.size();
  if (!rest.empty() && ::ftruncate(handle_.get(), static_cast<off_t>(size_)) != 0) {
    throw_write_failure(file_, errno);
  }
}

void ResultsStore::append(std::string_view line) {
  std::string whole(line);
  whole += '\n';
  if (!write_all(handle_.get(), whole) || ::fsync(handle_.get()) != 0) {
    const int error = errno;
    // Should this fail too, the next run cuts the torn line off.
    [[maybe_unused]] const int cut = ::ftruncate(handle_.get(), static_cast<off_t>(size_));
    throw_write_failure(file_, error);
  }
  size_ += whole.size();
}

}  // namespace coppice::study
