#include "study/files/appended_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace coppice::study {

AppendedFile::AppendedFile(std::filesystem::path path, FileHandle handle,
                           std::uintmax_t whole_bytes)
    : path_(std::move(path)), handle_(std::move(handle)), size_(whole_bytes) {
  const off_t end = ::lseek(handle_.get(), 0, SEEK_END);
  const auto whole = static_cast<off_t>(size_);
  if (end < 0 || (end != whole && ::ftruncate(handle_.get(), whole) != 0)) {
    throw_write_failure(path_, errno);
  }
}

void AppendedFile::append(std::string_view lines) {
  const bool placed = ::lseek(handle_.get(), static_cast<off_t>(size_), SEEK_SET) >= 0;
  if (!placed || !write_all(handle_.get(), lines)) {
    const int error = errno;
    // Should this fail too, the next run cuts the torn line off.
    [[maybe_unused]] const int cut = ::ftruncate(handle_.get(), static_cast<off_t>(size_));
    throw_write_failure(path_, error);
  }
  size_ += lines.size();
}

void AppendedFile::sync() {
  if (::fsync(handle_.get()) != 0) throw_write_failure(path_, errno);
}

}  // namespace coppice::study
