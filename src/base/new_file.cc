#include "base/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

/// The file that a chain of symbolic links leads to, so that the links stay.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path place = fs::canonical(path, error);
  return error ? path : place;
}

/// What leads to an open file that has no name.
std::string link_of(const FileHandle& file) { return cat("/proc/self/fd/", file.get()); }

}  // namespace

void require_new_file(const fs::path& path, Existing existing, const char* remedy) {
  require_writable(path);
  if (!is_there(path)) return;
  if (existing == Existing::refuse) throw_failure(cat(path.string(), ": is there; ", remedy));
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw_failure(cat(path.string(), ": not a regular file; write elsewhere"));
  }
}

NewFile::NewFile(const fs::path& path, std::uint64_t bytes) : path_(path), place_(resolved(path)) {
  const fs::path folder = place_.has_parent_path() ? place_.parent_path() : ".";
  file_ = FileHandle(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, usual_mode));
  const bool nameless = file_.get() >= 0 && ::access(link_of(file_).c_str(), F_OK) == 0;
  if (!nameless) {  // a file system that has none, or no /proc to name it by
    do {
      beside_ = name_beside(place_);
      file_ =
          FileHandle(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, usual_mode));
    } while (file_.get() < 0 && (errno == EINTR || errno == EEXIST));  // another machine's
  }
  if (file_.get() < 0) throw_write_failure(path_, errno, free_space);
  const auto size = static_cast<off_t>(bytes);
  int error = ::ftruncate(file_.get(), size) != 0 ? errno : 0;
  // Not every file system can reserve space: there a full disk is noticed when it is full.
  if (error == 0 && size > 0 && ::fallocate(file_.get(), 0, 0, size) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    error = errno;
  }
  if (error == 0) return;
  if (!beside_.empty()) ::unlink(beside_.c_str());
  throw_write_failure(path_, error, free_space);
}

NewFile::~NewFile() {
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

void NewFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_write_failure(path_, errno, free_space);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void NewFile::finish(Existing existing) {
  struct stat old = {};
  if (existing == Existing::replace && ::stat(place_.c_str(), &old) == 0 &&
      ::fchmod(file_.get(), old.st_mode & 0777) != 0) {
    throw_write_failure(path_, errno, free_space);
  }
  if (::fsync(file_.get()) != 0) throw_write_failure(path_, errno, free_space);
  while (beside_.empty()) {
    const fs::path beside = name_beside(place_);
    if (::linkat(AT_FDCWD, link_of(file_).c_str(), AT_FDCWD, beside.c_str(), AT_SYMLINK_FOLLOW) ==
        0) {
      beside_ = beside;
    } else if (errno != EEXIST) {
      throw_write_failure(path_, errno, free_space);
    }
  }
  const unsigned flags = existing == Existing::refuse ? RENAME_NOREPLACE : 0;
  int moved = ::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, place_.c_str(), flags);
  if (moved != 0 && (errno == EINVAL || errno == ENOSYS)) {  // a file system without the flag
    moved = is_there(place_) && flags != 0 ? (errno = EEXIST, -1)
                                           : ::rename(beside_.c_str(), place_.c_str());
  }
  if (moved != 0) throw_write_failure(path_, errno, free_space);
  beside_.clear();
  sync_folder(place_.parent_path());
}

}  // namespace coppice
