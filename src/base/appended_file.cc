#include "base/appended_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

/// Whether the name still leads to what was opened: a writer may have replaced it meanwhile.
bool is_still(const FileHandle& handle, const std::filesystem::path& path) {
  struct stat opened = {}, named = {};
  return ::fstat(handle.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FileHandle open_locked(const std::filesystem::path& path, int flags) {
  FileHandle handle = open_file(path, O_RDWR | O_CREAT | flags);
  int locked = 0;
  do {
    locked = ::flock(handle.get(), LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked == 0) return is_still(handle, path) ? std::move(handle) : FileHandle();
  if (errno == EWOULDBLOCK) return FileHandle();
  throw_failure(
      cat(path.string(), ": cannot be locked: ", std::strerror(errno), "; use a local disk"));
}

AppendedFile::AppendedFile(std::filesystem::path path, FileHandle handle,
                           std::uintmax_t whole_bytes, const char* when_full)
    : path_(std::move(path)),
      handle_(std::move(handle)),
      size_(whole_bytes),
      when_full_(when_full) {
  const off_t end = ::lseek(handle_.get(), 0, SEEK_END);
  const auto whole = static_cast<off_t>(size_);
  if (end < 0 || (end != whole && ::ftruncate(handle_.get(), whole) != 0)) {
    throw_write_failure(path_, errno, when_full_);
  }
}

void AppendedFile::require_untouched() const {
  struct stat about = {};
  const bool known = ::fstat(handle_.get(), &about) == 0;
  if (known && is_still(handle_, path_) && std::cmp_equal(about.st_size, size_)) return;
  throw_failure(cat(path_.string(),
                    ": another program changed, moved or removed it meanwhile; restore or remove "
                    "it and start again"));
}

void AppendedFile::append(std::string_view lines) {
  require_untouched();
  const bool placed = ::lseek(handle_.get(), static_cast<off_t>(size_), SEEK_SET) >= 0;
  if (!placed || !write_all(handle_.get(), lines)) {
    const int error = errno;
    // Should this fail too, the next run cuts the torn line off.
    [[maybe_unused]] const int cut = ::ftruncate(handle_.get(), static_cast<off_t>(size_));
    throw_write_failure(path_, error, when_full_);
  }
  size_ += lines.size();
}

void AppendedFile::cut(std::uintmax_t bytes) {
  if (::ftruncate(handle_.get(), static_cast<off_t>(bytes)) != 0) {
    throw_write_failure(path_, errno, when_full_);
  }
  size_ = bytes;
}

void AppendedFile::sync() {
  require_untouched();
  if (::fsync(handle_.get()) != 0) throw_write_failure(path_, errno, when_full_);
}

void AppendedFile::remove() {
  if (is_still(handle_, path_)) ::unlink(path_.c_str());
}

}  // namespace coppice
